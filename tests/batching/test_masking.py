import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_rows import ALPHA, MASK, SELECTIONS, SIZE, SPECIALS, mask_rows, masker_of, pieces_of, rates, rows_of_ids, seeds_of
from scipy import stats

from xlm.batching.masking import Masker
from xlm.batching.masking_frequency import xlm_predictions_in
from xlm.batching.masking_rows import predictions_in
from xlm.config.phases import MaskingSection
from xlm.errors import UserError

EXACT = ("token", "span", "frequency")  # choose as many as the rate says; whole words as many as fit


def spaced_of(rows, number):
    return np.random.default_rng(number).random(sum(map(len, rows))) < 0.5


@pytest.mark.parametrize(
    ("maskable", "rate", "expected"),
    [(0, 0.15, 0), (1, 0.15, 1), (3, 0.15, 1), (10, 0.15, 2), (20, 0.15, 3), (100, 0.15, 15), (7, 0.5, 4), (2, 0.999, 2), (128, 0.3, 38)],
)
def test_the_number_of_predictions(maskable, rate, expected):
    assert predictions_in(np.array([maskable]), rate).tolist() == [expected]


@pytest.mark.parametrize("selection", SELECTIONS)
@given(rows=rows_of_ids, rate=rates, number=st.integers(0, 10**6), rtd=st.booleans())
@settings(max_examples=100, deadline=None)
def test_labels_are_what_was_there_and_nothing_else_changes(selection, rows, rate, number, rtd):
    ids = np.concatenate(rows)
    before = ids.copy()
    masked = mask_rows(masker_of(selection), rows, rate, seeds_of(len(rows), number), spaced=spaced_of(rows, number), rtd=rtd)
    assert np.array_equal(np.concatenate(rows), before)
    assert masked.positions.size == masked.labels.size
    assert (np.diff(masked.positions) > 0).all()
    assert np.array_equal(masked.labels, ids[masked.positions])
    assert not np.isin(masked.labels, SPECIALS).any()
    untouched = np.setdiff1d(np.arange(ids.size), masked.positions)
    assert np.array_equal(masked.input_ids[untouched], ids[untouched])
    shown = masked.input_ids[masked.positions]
    assert not np.isin(shown, [0, 1, 2, 3]).any()
    if rtd:
        assert ((shown == MASK) | (shown == masked.labels)).all()


@pytest.mark.parametrize("selection", SELECTIONS)
@given(rows=rows_of_ids, rate=rates, number=st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_every_row_gets_its_number_of_predictions(selection, rows, rate, number):
    masked = mask_rows(masker_of(selection), rows, rate, seeds_of(len(rows), number), spaced=spaced_of(rows, number))
    of_row = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    found = np.bincount(of_row[masked.positions], minlength=len(rows))
    maskable = np.array([(row > 4).sum() for row in rows])
    expected = xlm_predictions_in(maskable, rate) if selection == "frequency" else predictions_in(maskable, rate)
    if selection in EXACT:
        assert np.array_equal(found, expected)
    else:
        assert np.array_equal(found > 0, maskable > 0)


@pytest.mark.parametrize("selection", SELECTIONS)
@given(rows=rows_of_ids, rate=rates, number=st.integers(0, 10**6), data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_row_is_masked_alike_in_any_company_and_order(selection, rows, rate, number, data):
    masker = masker_of(selection)
    seeds = seeds_of(len(rows), number)
    spaced = np.split(spaced_of(rows, number), np.cumsum([len(row) for row in rows])[:-1])
    order = data.draw(st.permutations(range(len(rows))))
    together = mask_rows(masker, [rows[place] for place in order], rate, seeds[order], spaced=np.concatenate([spaced[at] for at in order]))
    alone = [mask_rows(masker_of(selection), [rows[at]], rate, seeds[at : at + 1], spaced=spaced[at]) for at in order]
    starts = np.cumsum([0, *(len(rows[at]) for at in order)])
    assert np.array_equal(together.input_ids, np.concatenate([masked.input_ids for masked in alone]))
    assert np.array_equal(together.labels, np.concatenate([masked.labels for masked in alone]))
    shifted = [masked.positions + start for masked, start in zip(alone, starts, strict=False)]
    assert np.array_equal(together.positions, np.concatenate(shifted))


@pytest.mark.parametrize("selection", EXACT)
@given(rows=rows_of_ids, low=rates, high=rates, number=st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_a_higher_rate_masks_what_a_lower_one_does_and_more(selection, rows, low, high, number):
    low, high = sorted((low, high))
    less, more = (mask_rows(masker_of(selection), rows, rate, seeds_of(len(rows), number)) for rate in (low, high))
    assert np.isin(less.positions, more.positions).all()
    assert np.array_equal(less.input_ids[less.positions], more.input_ids[less.positions])


@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_batch_without_text_predicts_nothing(selection):
    for rows in ([], [np.array([2, 3])], [np.array([], dtype=np.int64), np.array([2, 1, 3])]):
        masked = mask_rows(masker_of(selection), rows, 0.15)
        assert masked.positions.size == masked.labels.size == 0
        assert masked.input_ids.tolist() == [piece for row in rows for piece in row]


@given(rows=rows_of_ids, rate=rates)
@settings(max_examples=50, deadline=None)
def test_special_pieces_may_stand_anywhere_in_the_vocabulary(rows, rate):
    specials = (4, 7, 30, 299)
    masked = mask_rows(masker_of(specials=specials), rows, rate)
    assert not np.isin(masked.labels, specials).any()
    assert not np.isin(masked.input_ids[masked.positions], specials[1:]).any()


def test_masks_are_fixed_for_good():
    # A change here changes what every run that is to be resumed has seen.
    found = {}
    for selection in SELECTIONS:
        masked = mask_rows(masker_of(selection), [np.arange(100, 130)], 0.3)
        found[selection] = (masked.positions.tolist(), masked.input_ids[masked.positions].tolist())
    assert found == {
        "token": ([0, 11, 13, 14, 16, 19, 24, 27, 29], [4, 4, 113, 4, 4, 4, 4, 4, 85]),
        "whole_word": ([5, 6, 7, 14, 15, 16, 17, 18, 19], [4, 4, 4, 4, 4, 4, 4, 4, 4]),
        "span": ([5, 6, 7, 14, 15, 16, 17, 18, 19], [4, 4, 4, 4, 4, 4, 4, 4, 4]),
        "frequency": ([1, 4, 8, 10, 12, 22, 23, 25, 26], [4, 4, 4, 260, 4, 14, 4, 4, 4]),
    }


def test_frequency_without_counts_is_a_sentence():
    with pytest.raises(UserError, match="how often each piece occurs"):
        Masker(pieces_of(), MaskingSection(selection="frequency"))


@pytest.fixture(scope="module")
def many():
    """Forty thousand predictions on rows of one piece, so that random pieces show: place by row, and what stands there."""
    masked = mask_rows(masker_of(size=60), [np.full(100, 7)] * 2000, 0.2)
    return (masked.positions % 100).reshape(2000, 20), masked.input_ids[masked.positions].reshape(2000, 20)


def fates(shown, original=7):
    return np.array([(shown == MASK).sum(), ((shown != MASK) & (shown != original)).sum(), (shown == original).sum()])


@pytest.mark.parametrize(
    ("options", "rtd", "masked", "drawn"),
    [
        ({}, False, 0.8, 0.1),
        ({}, True, 0.85, 0.0),
        ({"masked_share": 0.5, "random_share": 0.5}, False, 0.5, 0.5),
        ({"masked_share": 1.0, "random_share": 0.0}, False, 1.0, 0.0),
        ({"rtd_masked_share": 1.0}, True, 1.0, 0.0),
        ({"masked_share": 0.0, "random_share": 1.0}, False, 0.0, 1.0),
    ],
)
@pytest.mark.parametrize("selection", SELECTIONS)
def test_eighty_ten_ten_and_other_shares(selection, options, rtd, masked, drawn):
    # Spans of one word: what becomes of a longer one is decided at once, see test_masking_spans.py.
    options = {**options, "span": {"longest": 1}}
    rows = mask_rows(masker_of(selection, size=60, **options), [np.full(100, 9)] * 2000, 0.2, rtd=rtd)
    # A random piece is the original one in 1 of 55 draws.
    expected = np.array([masked, drawn * 54 / 55, 1.0 - masked - drawn * 54 / 55])
    found = fates(rows.input_ids[rows.positions], original=9)
    possible = expected > 1e-12
    assert found[~possible].sum() == 0
    if possible.sum() > 1:
        assert stats.chisquare(found[possible], expected[possible] * found.sum()).pvalue > ALPHA


def test_random_pieces_are_uniform_over_all_text_pieces(many):
    _, shown = many
    drawn = np.bincount(shown[(shown != MASK) & (shown != 7)], minlength=60)
    assert drawn[[0, 1, 2, 3, 4, 7]].sum() == 0
    assert stats.chisquare(np.delete(drawn, [0, 1, 2, 3, 4, 7])).pvalue > ALPHA


def test_positions_are_uniform(many):
    places = np.bincount(many[0].ravel(), minlength=100)
    # Without replacement inside a row, the counts vary less than chi-square says; 1 - .2 of it.
    statistic = ((places - 400) ** 2 / 400).sum() / (1 - 0.2)
    assert ALPHA < stats.chi2.sf(statistic, 99) < 1 - ALPHA


def test_positions_of_a_row_do_not_attract_or_repel_each_other(many):
    chosen = np.zeros((2000, 100))
    np.put_along_axis(chosen, many[0], 1.0, axis=1)
    together = (chosen.T @ chosen)[np.triu_indices(100, 1)]
    # Two given positions are chosen together with probability 20 / 100 * 19 / 99.
    chance = 20 / 100 * 19 / 99
    extreme = stats.binom.isf(ALPHA / together.size / 2, 2000, chance), stats.binom.ppf(ALPHA / together.size / 2, 2000, chance)
    assert extreme[1] <= together.min() <= together.max() <= extreme[0]


def test_what_becomes_of_a_position_does_not_depend_on_where_it_is_or_on_its_neighbours(many):
    places, shown = many
    is_mask = shown == MASK
    halves = [[(is_mask & at).sum(), (~is_mask & at).sum()] for at in (places < 50, places >= 50)]
    assert stats.chi2_contingency(halves).pvalue > ALPHA
    following = [[(is_mask[:, :-1] & after).sum(), (~is_mask[:, :-1] & after).sum()] for after in (is_mask[:, 1:], ~is_mask[:, 1:])]
    assert stats.chi2_contingency(following).pvalue > ALPHA


def test_which_random_piece_is_drawn_does_not_depend_on_the_row(many):
    _, shown = many
    drawn = (shown != MASK) & (shown != 7)
    rows, places = np.nonzero(drawn)
    low = shown[rows, places] < 33
    table = [[(low & (rows % 2 == parity)).sum(), (~low & (rows % 2 == parity)).sum()] for parity in (0, 1)]
    assert stats.chi2_contingency(table).pvalue > ALPHA


class TokenizerOfTheCollator:
    """As much of a tokenizer as transformers' collator asks for."""

    mask_token, mask_token_id, pad_token_id, all_special_ids = "<mask>", MASK, 0, SPECIALS

    def __len__(self):
        return SIZE

    def convert_tokens_to_ids(self, token):
        return MASK

    def get_special_tokens_mask(self, ids, already_has_special_tokens=True):
        return [int(piece in SPECIALS) for piece in ids]


def test_shares_are_those_of_a_known_collator():
    """A sanity check of the definition: its number of predictions varies, and its random pieces may be special ones."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    ids = np.random.default_rng(0).integers(5, SIZE, (400, 100))
    collator = transformers.DataCollatorForLanguageModeling(TokenizerOfTheCollator(), mlm=True, mlm_probability=0.15, seed=5)
    inputs, labels = (tensor.numpy() for tensor in collator.torch_mask_tokens(torch.from_numpy(ids.copy())))
    theirs = np.array([(inputs[labels >= 0] == MASK).sum(), (inputs[labels >= 0] != MASK).sum(), (labels < 0).sum()])
    ours = mask_rows(masker_of(), list(ids), 0.15)
    is_mask = ours.input_ids[ours.positions] == MASK
    found = np.array([is_mask.sum(), (~is_mask).sum(), ids.size - is_mask.size])
    assert stats.chi2_contingency([theirs, found]).pvalue > ALPHA
