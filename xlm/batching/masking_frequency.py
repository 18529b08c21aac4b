"""Rare pieces more often than frequent ones (XLM, Conneau & Lample 2019; ``--sample_alpha`` of its release)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xlm.batching.keyed_words import SELECTION, words_at
from xlm.batching.masking_rows import Chosen, Flags, RowGrid
from xlm.batching.packed_rows import Ids

# Below this a product of rate and positions is taken for the whole number that it misses by rounding.
_ROUNDING = 1e-9
# Bits of a word that make a number between 0 and 1, so that adding a half is exact.
_BITS = 52


def xlm_predictions_in(maskable: Ids, rate: float) -> Ids:
    """Return how many of ``maskable`` positions XLM predicts: rate x maskable, rounded up."""
    counts: Ids = np.minimum(maskable, np.ceil(rate * maskable - _ROUNDING).astype(np.int64))
    return counts


class FrequencySelection:
    """Positions without replacement, each draw in proportion to max(count, 1)^-alpha of the piece that stands there.

    Position i gets the key -ln(u) / weight, u uniform, and the smallest keys are chosen: the same distribution as
    drawing one after the other and renormalising (Efraimidis & Spirakis 2006, "Weighted random sampling with a
    reservoir"). Logarithms may differ in the last bit between processors. That changes a choice only where two keys of
    a row agree in 52 bits just at the edge of what is chosen: less than once in 10^12 rows.
    """

    def __init__(self, piece_counts: NDArray[np.uint64], alpha: float) -> None:
        self._inverse_weights: NDArray[np.float64] = np.maximum(piece_counts, np.uint64(1)).astype(np.float64) ** alpha

    def choose(self, grid: RowGrid, rate: float, spaced: Flags | None) -> Chosen:
        """Choose exactly `xlm_predictions_in` positions of each row; a higher rate chooses what a lower one does, and more."""
        words = words_at(grid.seeds[:, None], np.arange(grid.width), SELECTION)
        uniform = ((words >> np.uint64(64 - _BITS)).astype(np.float64) + 0.5) * 0.5**_BITS
        keys = -np.log(uniform) * grid.to_grid(self._inverse_weights[grid.ids])
        # Positive numbers are in the order of their bits.
        return grid.smallest(keys.view(np.uint64), xlm_predictions_in(grid.maskable, rate))
