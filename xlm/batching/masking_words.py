"""Whole words at a time (BERT's whole-word masking, Devlin et al. 2019, release of May 2019).

Shapes: R rows, W words of all rows, N words of the row that has most.
"""

from __future__ import annotations

import numpy as np

from xlm.batching.keyed_words import SELECTION, Words, words_at
from xlm.batching.masking_rows import Chosen, Flags, RowGrid, predictions_in
from xlm.batching.packed_rows import NO_IDS, Ids, ranges
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
        self._firsts: Ids = np.searchsorted(self.begins, grid.starts)  # [R]
        self.per_row = np.diff(self._firsts, append=self.begins.size)  # [R]
        self.rows = np.repeat(np.arange(self.per_row.size), self.per_row)  # [W]
        self.places = self.begins - grid.starts[self.rows]  # [W], counted in the row
        self._seeds = grid.seeds[self.rows]

    def in_keyed_order(self) -> Ids:
        """Return the numbers of each row's words in a uniform order, [R, N], and -1 behind a row's last."""
        widest = int(self.per_row.max(initial=0))
        numbers = np.arange(self.begins.size, dtype=np.int64) - self._firsts[self.rows]
        keys = np.full((self.per_row.size, widest), ~np.uint64(0))
        keys.reshape(-1)[self.rows * widest + numbers] = self.words(SELECTION) & ~_NUMBER | numbers.view(np.uint64)
        keys.sort(axis=1)
        order = (keys & _NUMBER).view(np.int64) + self._firsts[:, None]
        order[np.arange(widest) >= self.per_row[:, None]] = -1
        return order

    def words(self, stream: int, numbers: Ids | slice = slice(None)) -> Words:
        """Return a random word for each of the words ``numbers``, in their shape: that of its first place."""
        return words_at(self._seeds[numbers], self.places[numbers], stream)

    def ends_of_runs(self) -> Ids:
        """Return the last of the words that follow each word without a special piece or a row's end between them, [W]."""
        ends = self.begins + self.lengths
        follows = (self.begins[1:] == ends[:-1]) & (self.rows[1:] == self.rows[:-1])
        lasts = np.flatnonzero(np.append(~follows, True)[: ends.size])
        return np.repeat(lasts, np.diff(lasts, prepend=-1))


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
        budgets = predictions_in(grid.maskable, rate)
        chosen = np.sort(_words_that_fit(words, budgets))
        tokens = ranges(words.begins[chosen], words.lengths[chosen])
        rows = np.repeat(words.rows[chosen], words.lengths[chosen])
        return Chosen(rows, tokens - grid.starts[rows])


def _words_that_fit(words: RowWords, budgets: Ids) -> Ids:
    """Return the numbers of the words to take, in any order, for rows that may have ``budgets`` [R] positions."""
    order = words.in_keyed_order()
    lengths = np.append(words.lengths, 0)  # what is -1 in order has length 0
    left = budgets.copy()
    taken: list[Ids] = []
    # A stretch of the order at a time, because rows are full long before its end.
    stretch = max(1, int(budgets.max(initial=0)))
    for first in range(0, order.shape[1], stretch):
        rows = np.flatnonzero(left)
        if not rows.size:
            break
        numbers = order[rows, first : first + stretch]
        fits, left[rows] = _what_fits(lengths[numbers], left[rows])
        taken.append(numbers[fits])
    bare = np.flatnonzero((left == budgets) & (budgets > 0))
    if bare.size:
        candidates = np.where(order[bare] >= 0, lengths[order[bare]], np.iinfo(np.int64).max)
        taken.append(order[bare, candidates.argmin(axis=1)])
    return np.concatenate(taken) if taken else NO_IDS


def _what_fits(lengths: Ids, left: Ids) -> tuple[Flags, Ids]:
    """Go through ``lengths`` [R, n] from the left and take each, if any, that fits into what the row has left [R].

    Returns what is taken, and what is left then. One round takes every one before the first that is too long for what
    its predecessors leave; from there on less is left than that one's length, so that rounds are few.
    """
    taken = np.zeros(lengths.shape, dtype=np.bool_)
    candidates = lengths > 0
    while candidates.any():
        candidates &= lengths <= left[:, None]
        fits = candidates & (np.cumsum(lengths * candidates, axis=1) <= left[:, None])
        taken |= fits
        candidates &= ~fits
        left = left - (lengths * fits).sum(axis=1)
    return taken, left
