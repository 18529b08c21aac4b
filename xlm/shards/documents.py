"""A shard's documents as a row plan sees them: where they lie and where they may be cut."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from xlm.shards.cutting import Spans, cut, split
from xlm.shards.reader import TokenShard


@dataclass(frozen=True)
class Documents:
    """The documents of one shard, with its vocabulary's flags [size] of pieces that begin a word."""

    shard: TokenShard
    is_word_start: npt.NDArray[np.bool_]

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Where each begins in the flat tokens, [items + 1]."""
        return self.shard.offsets[0]

    @cached_property
    def whole(self) -> Spans:
        """Every document, uncut."""
        lengths = np.diff(self.offsets)
        return Spans(np.arange(len(lengths)), np.zeros_like(lengths), lengths)

    @cached_property
    def sentences_known(self) -> npt.NDArray[np.bool_]:
        """Whether the sentences of a document are known, [items]."""
        return self.shard.sentence_starts()[0]

    @cached_property
    def sentence_points(self) -> npt.NDArray[np.int64]:
        """Where known sentences begin in the flat tokens, ascending."""
        return self.shard.sentence_starts()[1]

    @cached_property
    def word_points(self) -> npt.NDArray[np.int64]:
        """Where words begin in the flat tokens, ascending."""
        return np.flatnonzero(self.is_word_start[self.shard.tokens[0]])

    def pieces(self, capacity: int) -> Spans:
        """Return the documents, those longer than ``capacity`` tokens cut before a sentence, else a word."""
        if (self.whole.lengths <= capacity).all():
            return self.whole
        return cut(self.whole, capacity, self.offsets, self.sentence_points, self.word_points)

    def sentences(self, capacity: int) -> Spans:
        """Return sentences, those longer than ``capacity`` cut before a word; a document of unknown sentences is one."""
        found = split(self.whole, self.offsets, self.sentence_points)
        if (found.lengths <= capacity).all():
            return found
        return cut(found, capacity, self.offsets, self.word_points)

    def middle_word(self, item: int, start: int, end: int) -> int:
        """Return where the word nearest to the middle of a stretch of a document begins, else its middle; at least 2 tokens."""
        base, middle = int(self.offsets[item]), (start + end) // 2
        words = self.word_points[slice(*np.searchsorted(self.word_points, [base + start + 1, base + end]))] - base
        return int(words[np.abs(words - middle).argmin()]) if len(words) else middle
