from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from xlm.batching.masking import Masker, predictions_in
from xlm.seeding import key_digest


def mask_one(masker, ids, rate, key):
    return masker.mask(ids, np.array([ids.size]), rate, [key])


@pytest.mark.parametrize(
    ("maskable", "rate", "expected"),
    [(0, 0.15, 0), (1, 0.15, 1), (3, 0.15, 1), (10, 0.15, 2), (20, 0.15, 3), (100, 0.15, 15), (7, 0.5, 4), (2, 0.999, 2), (128, 0.3, 38)],
)
def test_the_number_of_predictions(maskable, rate, expected):
    assert predictions_in(maskable, rate) == expected


@given(ids=st.lists(st.integers(0, 299), min_size=1, max_size=80), rate=st.floats(0.01, 0.99), key=st.integers(0, 10**9))
@settings(max_examples=200, deadline=None)
def test_labels_are_what_was_there_and_nothing_else_changes(ids, rate, key):
    pieces = SimpleNamespace(size=300, special_ids=(0, 1, 2, 3, 4), bos_id=2, eos_id=3, mask_id=4)
    ids = np.array(ids)
    before = ids.copy()
    masked = mask_one(Masker(pieces), ids, rate, key_digest(key))
    assert np.array_equal(ids, before)
    assert masked.positions.size == masked.labels.size == predictions_in(int((ids > 4).sum()), rate)
    assert (np.diff(masked.positions) > 0).all()
    assert np.array_equal(masked.labels, ids[masked.positions])
    assert (masked.labels > 4).all()
    untouched = np.setdiff1d(np.arange(ids.size), masked.positions)
    assert np.array_equal(masked.input_ids[untouched], ids[untouched])
    shown = masked.input_ids[masked.positions]
    assert ((shown > 4) | (shown == 4)).all()


def test_a_mask_depends_on_its_key_alone(pieces):
    ids = np.arange(5, 69)
    masker = Masker(pieces)
    first = mask_one(masker, ids, 0.15, key_digest("row", 1))
    mask_one(masker, ids, 0.5, key_digest("row", 2))
    again = mask_one(Masker(pieces), ids, 0.15, key_digest("row", 1))
    other = mask_one(masker, ids, 0.15, key_digest("row", 2))
    assert np.array_equal(first.input_ids, again.input_ids)
    assert np.array_equal(first.positions, again.positions)
    assert not np.array_equal(first.positions, other.positions)


def test_rows_masked_together_are_as_masked_alone(pieces):
    masker = Masker(pieces)
    rows = [np.arange(10, 30), np.array([2, 1, 3]), np.arange(200, 207), np.array([2, 9, 3])]
    lengths = np.array([row.size for row in rows])
    together = masker.mask(np.concatenate(rows), lengths, 0.3, [key_digest("row", number) for number in range(4)])
    alone = [mask_one(masker, row, 0.3, key_digest("row", number)) for number, row in enumerate(rows)]
    starts = np.cumsum(lengths) - lengths
    assert np.array_equal(together.input_ids, np.concatenate([masked.input_ids for masked in alone]))
    assert np.array_equal(together.labels, np.concatenate([masked.labels for masked in alone]))
    shifted = [masked.positions + start for masked, start in zip(alone, starts, strict=True)]
    assert np.array_equal(together.positions, np.concatenate(shifted))
    assert alone[1].labels.size == 0


def test_masks_are_fixed_for_good(pieces):
    # A change here changes what every run that is to be resumed has seen.
    masked = mask_one(Masker(pieces), np.arange(100, 120), 0.3, key_digest("golden"))
    assert masked.positions.tolist() == [0, 2, 4, 7, 13, 15]
    assert masked.input_ids[masked.positions].tolist() == [4, 4, 4, 289, 4, 4]


@pytest.fixture(scope="module")
def many():
    """Forty thousand predictions on rows of one piece, so that random pieces show."""
    pieces = SimpleNamespace(size=60, special_ids=(0, 1, 2, 3, 4), bos_id=2, eos_id=3, mask_id=4)
    masker, ids = Masker(pieces), np.full(100, 7)
    return [mask_one(masker, ids, 0.2, key_digest("many", row)) for row in range(2000)]


# The keys are fixed, so these pass or fail for good; the level says how likely a right masker was to fail
# on the day they were written: 1e-4 each.
def test_eighty_ten_ten(many):
    shown = np.concatenate([masked.input_ids[masked.positions] for masked in many])
    # A random piece is the original one in 1 of 55 draws.
    expected = np.array([0.8, 0.1 * 54 / 55, 0.1 + 0.1 / 55]) * shown.size
    found = np.array([(shown == 4).sum(), ((shown != 4) & (shown != 7)).sum(), (shown == 7).sum()])
    assert stats.chisquare(found, expected).pvalue > 1e-4


def test_random_pieces_are_uniform_over_all_text_pieces(many):
    shown = np.concatenate([masked.input_ids[masked.positions] for masked in many])
    drawn = np.bincount(shown[(shown != 4) & (shown != 7)], minlength=60)
    assert drawn[[0, 1, 2, 3, 4, 7]].sum() == 0
    assert stats.chisquare(np.delete(drawn, [0, 1, 2, 3, 4, 7])).pvalue > 1e-4


def test_positions_are_uniform(many):
    places = np.bincount(np.concatenate([masked.positions for masked in many]), minlength=100)
    # Without replacement inside a row, the counts vary a little less than chi-square says; 1 - .2 of it.
    statistic = ((places - 400) ** 2 / 400).sum() / (1 - 0.2)
    assert 1e-4 < stats.chi2.sf(statistic, 99) < 1 - 1e-4


def test_the_fate_of_a_position_does_not_depend_on_where_it_is(many):
    halves = np.zeros((2, 2))
    for masked in many:
        for half, at in enumerate((masked.positions < 50, masked.positions >= 50)):
            is_mask = masked.input_ids[masked.positions[at]] == 4
            halves[half] += (is_mask.sum(), (~is_mask).sum())
    assert stats.chi2_contingency(halves).pvalue > 1e-4
