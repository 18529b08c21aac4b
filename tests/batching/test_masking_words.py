import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_rows import ALPHA, MASK, mask_rows, masker_of, rates, rows_of_ids, seeds_of, words_of
from scipy import stats

from xlm.batching.keyed_words import words_at
from xlm.batching.masking_rows import predictions_in


def reference(row, spaced, rate, seed):
    """Go through the words one by one, as BERT's release does, in the order of each one's random word."""
    found = words_of(row, spaced)
    # The low bits of a key are the word's number.
    keys = [(int(words_at(np.array([seed]), np.array([word[0]]), 0)[0]) >> 16, number) for number, word in enumerate(found)]
    budget = int(predictions_in(np.array([sum(map(len, found))]), rate)[0])
    order = [found[number] for _, number in sorted(keys)]
    chosen = []
    for word in order:
        if len(chosen) + len(word) <= budget:
            chosen += word
    if found and not chosen:
        chosen = min(order, key=len)
    return sorted(chosen)


@given(rows=rows_of_ids, rate=rates, number=st.integers(0, 10**6))
@settings(max_examples=300, deadline=None)
def test_words_are_chosen_as_one_by_one(rows, rate, number):
    seeds = seeds_of(len(rows), number)
    spaced = np.random.default_rng(number).random(sum(map(len, rows))) < 0.5
    masked = mask_rows(masker_of("whole_word"), rows, rate, seeds, spaced=spaced)
    expected, start = [], 0
    for row, seed in zip(rows, seeds, strict=True):
        expected += [start + place for place in reference(row, spaced[start : start + len(row)], rate, seed)]
        start += len(row)
    assert masked.positions.tolist() == expected


def test_words_of_any_length_are_taken_in_whole_and_fill_the_rate():
    draw = np.random.default_rng(3)
    # One piece in three begins a word: words of 3 pieces on average, some of a dozen.
    rows = [draw.integers(5, 300, 128) for _ in range(500)]
    masked = mask_rows(masker_of("whole_word"), rows, 0.15)
    ids = np.concatenate(rows)
    chosen = np.zeros(ids.size, dtype=bool)
    chosen[masked.positions] = True
    begins = (ids % 3 == 0) | (np.arange(ids.size) % 128 == 0)
    assert (chosen[1:] == chosen[:-1])[~begins[1:]].all()
    # A row falls short of its 19 positions only if no word is left that is short enough.
    assert np.bincount(masked.positions // 128, minlength=500).tolist() == [19] * 500


def test_positions_of_a_word_decide_for_themselves():
    # Words of two pieces, both the same piece as everywhere.
    masked = mask_rows(masker_of("whole_word", size=60), [np.tile([9, 10], 50)] * 2000, 0.2)
    is_mask = masked.input_ids[masked.positions].reshape(-1, 2) == MASK
    table = [
        [(is_mask[:, 1] & (is_mask[:, 0] == first)).sum(), (~is_mask[:, 1] & (is_mask[:, 0] == first)).sum()] for first in (True, False)
    ]
    assert stats.chi2_contingency(table).pvalue > ALPHA


def test_words_of_one_length_are_equally_likely():
    masked = mask_rows(masker_of("whole_word"), [np.tile([9, 10], 50)] * 4000, 0.2)
    assert (np.diff(masked.positions.reshape(-1, 2), axis=1) == 1).all()
    places = np.bincount(masked.positions[::2] % 100 // 2, minlength=50)
    statistic = ((places - 800) ** 2 / 800).sum() / (1 - 0.2)
    assert ALPHA < stats.chi2.sf(statistic, 49) < 1 - ALPHA
