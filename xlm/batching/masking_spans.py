"""Spans of words (SpanBERT, Joshi et al. 2020, section 3.1; ALBERT's n-grams, Lan et al. 2020).

A span begins at a word chosen uniformly among those not masked yet, and its length in words is drawn from the
recipe's distribution: geometric, p(n) in proportion to p (1 - p)^(n-1) for n up to the longest (mean 3.8 at .2 and 10),
or harmonic, in proportion to 1 / n. It ends early before a special piece, hence inside its sequence. Spans are
drawn until exactly `predictions_in` positions are masked, the last one cut there as in the released code. Where a
span runs into an older one, that keeps its positions. What becomes of a span is decided once for all of it;
random pieces are drawn for each position.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xlm.batching.keyed_words import LENGTH, Words
from xlm.batching.masking_rows import Chosen, Flags, RowGrid, predictions_in
from xlm.batching.masking_words import RowWords
from xlm.batching.packed_rows import Ids, ranges, starts_of
from xlm.config.phases import SpanSection

_BITS = 63  # of a word that decide a length; all 64 would not hold the probability 1


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

    def choose(self, grid: RowGrid, rate: float, spaced: Flags | None) -> Chosen:
        """Choose spans; a higher rate chooses what a lower one does, and more."""
        words = RowWords(grid, self._is_word_start, spaced)
        ends = _ends_of_spans(words, self._lengths.of(words.words(LENGTH)))
        order = words.in_keyed_order()
        left = predictions_in(grid.maskable, rate)
        deciders = np.full(grid.ids.size, -1, dtype=np.int64)  # -1 where nothing is masked
        rows = np.flatnonzero(left)
        # The first word in order of every row, then the second of every row, ...; few, since spans are long.
        for words_in_turn in order.T:
            rows = rows[left[rows] > 0]
            if not rows.size:
                break
            firsts = words_in_turn[rows]
            firsts = firsts[deciders[words.begins[firsts]] < 0]
            taken = _span_tokens(words.begins[firsts], ends[firsts], deciders, left[words.rows[firsts]])
            counts = np.bincount(taken[1], minlength=firsts.size)
            deciders[taken[0]] = words.places[firsts][taken[1]]
            left[words.rows[firsts]] -= counts
        tokens = np.flatnonzero(deciders >= 0)
        of_rows = grid.rows_of(tokens)
        return Chosen(of_rows, tokens - grid.starts[of_rows], deciders[tokens])


def _ends_of_spans(words: RowWords, lengths: Ids) -> Ids:
    """Return the token behind the last of a span of ``lengths`` [W] words from each word, [W]."""
    ends = words.begins + words.lengths
    count = ends.size
    apart = np.append((words.begins[1:] != ends[:-1]) | (words.rows[1:] != words.rows[:-1]), True)[:count]
    lasts = np.flatnonzero(apart)  # of words that follow each other without a special piece between them
    last = np.repeat(lasts, np.diff(lasts, prepend=-1))
    spans: Ids = ends[np.minimum(np.arange(count) + lengths - 1, last)]
    return spans


def _span_tokens(begins: Ids, ends: Ids, deciders: Ids, most: Ids) -> tuple[Ids, Ids]:
    """Return the tokens of spans [n] that are not masked yet, ``most`` [n] of each, and whose they are."""
    lengths = ends - begins
    tokens, owners = ranges(begins, lengths), np.repeat(np.arange(lengths.size), lengths)
    fresh = deciders[tokens] < 0
    tokens, owners = tokens[fresh], owners[fresh]
    firsts = starts_of(np.bincount(owners, minlength=lengths.size))
    kept = np.arange(owners.size) - firsts[owners] < most[owners]
    return tokens[kept], owners[kept]
