"""Whole words at a time (BERT's whole-word masking, Devlin et al. 2019, release of May 2019).

Shapes: R rows, W words of all rows, N words of the row that has most.
"""

from __future__ import annotations

import numpy as np

from xlm.batching.keyed_words import SELECTION, words_at
from xlm.batching.masking_rows import Chosen, Flags, RowGrid, predictions_in
from xlm.batching.packed_rows import Ids, ranges, starts_of
from xlm.batching.words import word_starts

# Low bits of a sorting key say which word it is: up to 65,536 words a row, and 48 random bits to order them by.
_NUMBER = np.uint64((1 << 16) - 1)


class RowWords:
    """The words of all rows: where they begin, how many pieces they have, and an order of each row's words."""

    def __init__(self, grid: RowGrid, is_word_start: Flags, spaced: Flags | None) -> None:
        text = grid.is_text[grid.ids]
        begins = word_starts(grid.ids, grid.starts, text, is_word_start, spaced)
        edges = np.flatnonzero(begins | ~text)
        lengths = np.diff(edges, append=grid.ids.size)
        at_word = begins[edges]
        self.begins = edges[at_word]  # [W], tokens
        self.lengths = lengths[at_word]  # [W]
        self.rows = grid.rows_of(self.begins)  # [W]
        self.places = self.begins - grid.starts[self.rows]  # [W], counted in the row
        self.per_row: Ids = np.bincount(self.rows, minlength=grid.lengths.size)  # [R]
        self._firsts = starts_of(self.per_row)  # [R]
        self._seeds = grid.seeds[self.rows]

    def in_keyed_order(self) -> Ids:
        """Return the numbers of each row's words in a uniform order, [R, N], and -1 behind a row's last."""
        widest = int(self.per_row.max(initial=0))
        inside = np.arange(widest) < self.per_row[:, None]
        keys = np.full(inside.shape, ~np.uint64(0))
        numbers = np.arange(self.begins.size, dtype=np.int64) - self._firsts[self.rows]
        keys[inside] = self.words(SELECTION) & ~_NUMBER | numbers.view(np.uint64)
        keys.sort(axis=1)
        return np.where(inside, (keys & _NUMBER).view(np.int64) + self._firsts[:, None], -1)

    def words(self, stream: int) -> np.typing.NDArray[np.uint64]:
        """Return a random word for each of the words, [W]: that of its first place."""
        return words_at(self._seeds, self.places, stream)


class WholeWordSelection:
    """Words in a uniform order, each taken that still fits into what is left of `predictions_in` positions.

    A word that does not fit is passed over; a row in which none fits gets the shortest, the first of them in
    that order. Each position of a word decides for itself what becomes of it, as in BERT's release.
    """

    def __init__(self, is_word_start: Flags) -> None:
        self._is_word_start = is_word_start

    def choose(self, grid: RowGrid, rate: float, spaced: Flags | None) -> Chosen:
        """Choose whole words (`xlm.batching.words`)."""
        words = RowWords(grid, self._is_word_start, spaced)
        order = words.in_keyed_order()
        # Nothing behind a row's last word: length 0. 32 bits, because this is read several times.
        lengths = np.append(words.lengths, 0).astype(np.int32)[order]
        taken = _take_what_fits(lengths, predictions_in(grid.maskable, rate).astype(np.int32))
        chosen = np.sort(order[taken])
        tokens = ranges(words.begins[chosen], words.lengths[chosen])
        rows = np.repeat(words.rows[chosen], words.lengths[chosen])
        return Chosen(rows, tokens - grid.starts[rows])


def _take_what_fits(lengths: np.typing.NDArray[np.int32], budgets: np.typing.NDArray[np.int32]) -> Flags:
    """Go through ``lengths`` [R, N] from the left and take each that fits into what is left of the row's budget [R].

    One round takes every one before the first that is too long for what its predecessors leave; from there on
    less is left than that one's length, so that rounds are few.
    """
    taken = np.zeros(lengths.shape, dtype=np.bool_)
    if not lengths.size:
        return taken
    open_ = lengths > 0
    left = budgets[:, None]
    while open_.any():
        open_ &= lengths <= left
        sums = np.cumsum(lengths * open_, axis=1, dtype=np.int32)
        fits = open_ & (sums <= left)
        taken |= fits
        left = left - (lengths * fits).sum(axis=1, keepdims=True, dtype=np.int32)
        open_ &= ~fits
    nothing = np.flatnonzero(~taken.any(axis=1) & (lengths[:, 0] > 0))
    shortest = np.where(lengths[nothing] > 0, lengths[nothing], np.iinfo(np.int32).max).argmin(axis=1)
    taken[nothing, shortest] = True
    return taken
