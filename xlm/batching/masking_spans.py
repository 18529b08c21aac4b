"""Spans of words (SpanBERT, Joshi et al. 2020, section 3.1; ALBERT's n-grams, Lan et al. 2020).

A span begins at a word chosen uniformly among those not masked yet, and its length in words is drawn from the
recipe's distribution: geometric, p(n) in proportion to p (1 - p)^(n-1) for n up to the longest (mean 3.8 at .2 and 10),
or harmonic, in proportion to 1 / n. It ends early before a special piece, hence inside its sequence. Spans are
drawn until exactly `predictions_in` positions are masked, the last one cut there as in the released code. Where a
span runs into an older one, that keeps its positions. What becomes of a span is decided once for all of it;
random pieces are drawn for each position.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from xlm.batching.keyed_words import LENGTH, Words
from xlm.batching.masking_rows import Chosen, Flags, RowGrid, predictions_in
from xlm.batching.masking_words import RowWords
from xlm.batching.packed_rows import Ids, ranges
from xlm.config.phases import SpanSection

_BITS = 63  # of a word that decide a length; all 64 would not hold the probability 1
_AT_ONCE = 8  # spans of a row whose lengths are drawn at once; most are never needed


class SpanLengths:
    """Draws lengths of spans, in words."""

    def __init__(self, span: SpanSection) -> None:
        lengths = np.arange(1, span.longest + 1)
        weights = 1.0 / lengths if span.lengths == "harmonic" else (1.0 - span.geometric_p) ** (lengths - 1.0)
        self.probabilities: NDArray[np.float64] = weights / weights.sum()  # of lengths 1, 2, ...
        # The last bound is left out: whatever lies behind the others is the longest.
        self._bounds = (np.cumsum(self.probabilities)[:-1] * float(1 << _BITS)).astype(np.uint64)

    def of(self, words: Words) -> Ids:
        """Return the length that each random word stands for, [n]."""
        lengths: Ids = np.searchsorted(self._bounds, words >> np.uint64(64 - _BITS), side="right") + 1
        return lengths


class SpanSelection:
    """Spans until exactly as many positions are masked as the rate asks for."""

    def __init__(self, is_word_start: Flags, span: SpanSection) -> None:
        self._is_word_start = is_word_start
        self._lengths = SpanLengths(span)
        self._longest = span.longest

    def choose(self, grid: RowGrid, rate: float, spaced: Flags | None) -> Chosen:
        """Choose spans; a higher rate chooses what a lower one does, and more."""
        words = RowWords(grid, self._is_word_start, spaced)
        left = predictions_in(grid.maskable, rate)
        masked = np.zeros_like(words.begins)  # [W], how many pieces of a word: all, none, or those before the cut
        owners = np.full_like(words.begins, -1)  # [W], the first word of the span
        rows = np.flatnonzero(left)
        # The first word in order of every row, then the second of every row, ...: not many, since spans are long.
        for firsts, lasts in self._spans_in_turn(words):
            rows = rows[left[rows] > 0]
            if not rows.size:
                break
            of_rows = rows[owners[firsts[rows]] < 0]
            begins = firsts[of_rows, None]
            members = begins + np.arange(self._longest)  # [n, longest]
            ends = lasts[of_rows, None]
            inside = members <= ends
            np.minimum(members, ends, out=members)
            free = words.lengths[members] * (inside & (owners[members] < 0))
            before = np.cumsum(free, axis=1) - free
            new = np.minimum(free, np.maximum(left[of_rows, None] - before, 0))
            hit = new > 0
            masked[members[hit]] = new[hit]
            owners[members[hit]] = np.broadcast_to(begins, members.shape)[hit]
            left[of_rows] -= new.sum(axis=1)
        chosen = np.flatnonzero(masked)
        counts = masked[chosen]
        of_tokens = np.repeat(words.rows[chosen], counts)
        places = ranges(words.places[chosen], counts)
        return Chosen(of_tokens, places, np.repeat(words.places[owners[chosen]], counts))

    def _spans_in_turn(self, words: RowWords) -> Iterator[tuple[Ids, Ids]]:
        """Yield the first words of spans of all rows [R] with the last words [R], in keyed order; -1 behind a row's last."""
        order = words.in_keyed_order()
        end = words.ends_of_runs()
        for first in range(0, order.shape[1], _AT_ONCE):
            numbers = order[:, first : first + _AT_ONCE]
            lasts = np.minimum(numbers + self._lengths.of(words.words(LENGTH, numbers)) - 1, end[numbers])
            yield from zip(numbers.T, lasts.T, strict=True)
