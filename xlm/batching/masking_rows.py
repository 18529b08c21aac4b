"""Rows as the lines of a grid, so that what is decided row by row is decided for all rows in one go.

Shapes: R rows, T tokens, P chosen positions, W the grid's width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from xlm.batching.keyed_words import SELECTION, Words, words_at
from xlm.batching.packed_rows import Ids, starts_of

Flags = NDArray[np.bool_]
Keys = NDArray[Any]  # unsigned integers, the smaller the earlier


@dataclass(frozen=True, slots=True)
class Chosen:
    """Positions to predict, row by row and ascending inside one."""

    rows: Ids  # [P]
    places: Ids  # [P], counted in the row
    # [P], places whose words decide between mask, random piece and original: a span's first place for all of it.
    # None: every position decides for itself.
    deciders: Ids | None = None


class RowGrid:
    """R rows that lie end to end with their seeds, and a grid [R, W] of a line each; some cells are *closed*.

    Closed are special pieces and whatever lies behind the end of a row. Rows of a batch are nearly equally
    long (plans fill them), so the grid is hardly larger than the rows.
    """

    def __init__(self, ids: Ids, lengths: Ids, seeds: Words, is_text: Flags, last_special: int) -> None:
        """Find what is closed; ``is_text`` [vocabulary] is False up to ``last_special`` at most, True behind it."""
        self.ids = ids
        self.is_text = is_text
        self.lengths = lengths
        self.seeds = seeds
        self.starts = starts_of(lengths)
        # Even, because keys come in twos from a word.
        self.width = (int(lengths.max(initial=1)) + 1) // 2 * 2
        # First cells of the lines in the flattened grid, and what leads from a line's cells to its tokens.
        self._lines = np.arange(lengths.size, dtype=np.int64) * self.width
        self._shift = self.starts - self._lines
        # Special pieces usually come first in a vocabulary, so that a comparison leaves few to look up.
        specials = np.flatnonzero(ids <= last_special)
        specials = specials[~is_text[ids[specials]]]
        rows = self.rows_of(specials)
        self._closed = specials - self._shift[rows]
        self.maskable: Ids = lengths - np.bincount(rows, minlength=lengths.size)  # [R]

    def rows_of(self, tokens: Ids) -> Ids:
        """Return the rows in which tokens [n] lie."""
        rows: Ids = np.searchsorted(self.starts, tokens, side="right") - 1
        return rows

    def positions(self, chosen: Chosen) -> Ids:
        """Return the tokens that were chosen, [P]."""
        return self.starts[chosen.rows] + chosen.places

    def outside(self, first: int = 0) -> Flags:
        """Return which cells of columns ``first`` and up lie behind the end of their row, [R, W - first]."""
        return np.arange(first, self.width) >= self.lengths[:, None]

    def to_grid(self, values: NDArray[Any]) -> NDArray[Any]:
        """Lay values of tokens [T] out as [R, W]; cells behind the end of a row are 0."""
        cells = np.zeros((self.lengths.size, self.width), dtype=values.dtype)
        cells[~self.outside()] = values
        return cells

    def keys(self) -> Keys:
        """Return independent uniform 32-bit keys, [R, W]: cell p of a line is half of word p // 2 of its row."""
        words = words_at(self.seeds[:, None], np.arange(self.width // 2), SELECTION)
        return words.astype("<u8", copy=False).view("<u4")

    def smallest(self, keys: Keys, counts: Ids) -> Chosen:
        """Choose the ``counts`` [R] smallest ``keys`` [R, W] of open cells in each row; of equal keys the first.

        With uniform keys that is a uniform choice without replacement. ``keys`` are overwritten in closed cells.
        """
        top = ~keys.dtype.type(0)
        keys.reshape(-1)[self._closed] = top
        shortest = int(self.lengths.min(initial=self.width))
        np.copyto(keys[:, shortest:], top, where=self.outside(shortest))
        last = np.sort(keys, axis=1).reshape(-1)[self._lines + np.maximum(counts - 1, 0)]
        last[counts == 0] = 0  # no key is smaller
        cells = np.flatnonzero(keys <= last[:, None])
        # At least counts, and more only where keys are equal, or 0 or the largest: one batch in thousands.
        if cells.size != int(counts.sum()):
            cells = self._smallest_of_equal(keys, counts)
        rows = cells // self.width
        return Chosen(rows, cells - rows * self.width)

    def _smallest_of_equal(self, keys: Keys, counts: Ids) -> Ids:
        closed = self.outside()
        closed.reshape(-1)[self._closed] = True
        order = np.lexsort((keys, closed), axis=1)
        cells = (order + self._lines[:, None])[np.arange(self.width) < counts[:, None]]
        cells.sort()
        return cells


class Selection(Protocol):
    """A way to choose positions; what it chooses in a row depends on the row and its seed alone."""

    def choose(self, grid: RowGrid, rate: float, spaced: Flags | None) -> Chosen:
        """Choose about ``rate`` of the maskable positions; ``spaced`` [T] says where words are told apart by spaces."""


def predictions_in(maskable: Ids, rate: float) -> Ids:
    """Return how many of ``maskable`` positions are predicted: rate x maskable, a half rounded up, at least one if any."""
    counts: Ids = np.minimum(maskable, np.maximum(1, np.floor(rate * maskable + 0.5).astype(np.int64)))
    return counts
