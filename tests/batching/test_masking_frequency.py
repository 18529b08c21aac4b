import itertools

import numpy as np
import pytest
from made_up_rows import ALPHA, SIZE, mask_rows, masker_of, pieces_of
from scipy import stats

from xlm.batching.masking import Masker
from xlm.batching.masking_frequency import xlm_predictions_in
from xlm.config.phases import MaskingSection


@pytest.mark.parametrize(
    ("maskable", "rate", "expected"),
    # XLM: ceil(.15 n). The product of .07 and 100 is 7.000000000000001.
    [(0, 0.15, 0), (1, 0.15, 1), (6, 0.15, 1), (7, 0.15, 2), (20, 0.15, 3), (21, 0.15, 4), (100, 0.07, 7), (100, 0.15, 15), (3, 0.99, 3)],
)
def test_the_number_of_predictions_is_rounded_up(maskable, rate, expected):
    assert xlm_predictions_in(np.array([maskable]), rate).tolist() == [expected]


def probability_of(chosen, weights):
    """Probability that drawing one after the other without replacement gives this set."""
    total = 0.0
    for order in itertools.permutations(chosen):
        left, probability = sum(weights), 1.0
        for place in order:
            probability *= weights[place] / left
            left -= weights[place]
        total += probability
    return total


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_sets_are_as_likely_as_when_drawn_one_by_one(alpha):
    counts = np.zeros(SIZE, dtype=np.uint64)
    counts[[10, 11, 12, 13, 14]] = (0, 1, 4, 9, 100)
    masker = Masker(pieces_of(), MaskingSection(selection="frequency", frequency_alpha=alpha), counts)
    number = 20_000
    masked = mask_rows(masker, [np.array([2, 10, 11, 12, 13, 14, 3])] * number, 0.4)
    sets = masked.positions.reshape(number, 2) % 7 - 1
    weights = [max(count, 1) ** -alpha for count in (0, 1, 4, 9, 100)]
    pairs = list(itertools.combinations(range(5), 2))
    found = [int((sets == pair).all(axis=1).sum()) for pair in pairs]
    expected = [probability_of(pair, weights) * number for pair in pairs]
    assert sum(expected) == pytest.approx(number)
    assert stats.chisquare(found, expected).pvalue > ALPHA


def test_the_whole_range_of_counts_is_told_apart():
    counts = np.full(SIZE, 10**15, dtype=np.uint64)
    counts[5] = 1
    masker = Masker(pieces_of(), MaskingSection(selection="frequency", frequency_alpha=2.0), counts)
    masked = mask_rows(masker, [np.array([9] * 50 + [5] + [9] * 49)] * 100, 0.01)
    assert masked.labels.tolist() == [5] * 100


def test_a_row_of_one_piece_is_masked_uniformly():
    masked = mask_rows(masker_of("frequency"), [np.full(50, 7)] * 4000, 0.2)
    places = np.bincount(masked.positions % 50, minlength=50)
    statistic = ((places - 800) ** 2 / 800).sum() / (1 - 0.2)
    assert ALPHA < stats.chi2.sf(statistic, 49) < 1 - ALPHA
