"""Where a document may be cut so that its pieces fit a row.

A cut falls before a sentence where sentences are known, else before a word, and inside a word only when
that word alone is longer than a row. Each piece becomes a sequence of its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def cut_document(length: int, capacity: int, *, sentence_starts: Sequence[int] | None, word_starts: Sequence[int]) -> list[tuple[int, int]]:
    """Return the pieces (start, end) of a document of ``length`` tokens, each of at most ``capacity`` tokens.

    ``sentence_starts`` and ``word_starts`` are ascending token offsets. The pieces cover every token once,
    in order; each is as long as the best kind of cut allows.
    """
    pieces: list[tuple[int, int]] = []
    start = 0
    while length - start > capacity:
        end = _last_in(sentence_starts or (), start, start + capacity)
        if end is None:
            end = _last_in(word_starts, start, start + capacity)
        if end is None:
            end = start + capacity
        pieces.append((start, end))
        start = end
    pieces.append((start, length))
    return pieces


def word_starts(tokens: npt.NDArray[np.generic], is_word_start: npt.NDArray[np.bool_]) -> list[int]:
    """Return the token offsets at which words begin, given [vocabulary] flags of the pieces that begin one."""
    offsets: list[int] = np.flatnonzero(is_word_start[tokens]).tolist()
    return offsets


def _last_in(offsets: Sequence[int], after: int, until: int) -> int | None:
    """Return the largest offset in (after, until]."""
    position = bisect_right(offsets, until) - 1
    return offsets[position] if position >= 0 and offsets[position] > after else None
