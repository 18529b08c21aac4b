"""A shard's documents as a row plan sees them: how long they are and where they may be cut.

A cut falls before a sentence where the sentences of a document are known, else before a word, and inside a
word only when that word alone is longer than a row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from xlm.shards.reader import TokenShard

# A piece cut before a word, and what it leaves of its document, have at least this many tokens where that can be.
LEAST_PIECE = 8

Flags = npt.NDArray[np.bool_]


class Documents:
    """The documents of one shard, to be cut into pieces of at most ``longest`` tokens.

    ``is_word_start`` [vocabulary] flags the pieces that begin a word. With ``whole_sentences`` known sentences
    are cut only where they are longer than that.
    """

    def __init__(self, shard: TokenShard, is_word_start: Flags, longest: int, *, whole_sentences: bool) -> None:
        lengths = np.diff(shard.offsets[0])
        self._first_tokens: list[int] = shard.offsets[0].tolist()
        self._longest, self._whole_sentences = longest, whole_sentences
        known, sentence_starts = shard.sentence_starts()
        # Of each token: whether a word begins, and whether a piece may begin.
        self._word: Flags = is_word_start[shard.tokens[0]]
        whole = ~known & (lengths <= longest)
        self._piece: Flags = self._word & np.repeat(~known & ~whole, lengths)
        self._piece[sentence_starts] = True
        self._sentences_known: list[bool] = known.tolist()
        self._whole: list[bool] = whole.tolist()

    def lengths_of_runs(self, item: int, start: int, end: int) -> int:
        """Return how long a piece from ``start`` may be, as bits: bit n for n tokens; 0 for no good cut in reach."""
        if self._whole[item]:
            return 1 << end
        found = self._begins(self._piece, item, start, end)
        return found if self._sentences_known[item] else _without_crumbs(found, end - start)

    def makeshift(self, item: int, start: int, end: int) -> int:
        """Return how long a piece may be at the cost of a sentence, or of a word that is longer than a row."""
        if self._whole_sentences and self._begins(self._piece, item, start, end):
            return 0
        words = self._begins(self._word, item, start, end)
        return _without_crumbs(words, end - start) if words else (2 << self._longest) - 2

    def _begins(self, flags: Flags, item: int, start: int, end: int) -> int:
        first = self._first_tokens[item] + start
        reach = min(self._longest, end - start)
        bits = int.from_bytes(np.packbits(flags[first + 1 : first + reach + 1], bitorder="little").tobytes(), "little") << 1
        # Where a document ends, another begins or none does.
        return bits | 1 << reach if reach == end - start else bits


def _without_crumbs(lengths: int, remaining: int) -> int:
    """Leave out lengths that make very short pieces, unless there are no others."""
    kept = lengths >> LEAST_PIECE << LEAST_PIECE
    kept &= (2 << max(0, remaining - LEAST_PIECE)) - 1
    kept |= lengths & 1 << remaining
    return kept or lengths
