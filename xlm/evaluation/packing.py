"""Sentences as the encoder reads them: ``<s> text </s>``, laid end to end, no padding.

Sorting by length before batching makes sequences of one batch alike, which is what attention inside
packed sequences is fast on; the order of the results is put back by whoever encodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xlm.vocab.vocabulary import Vocabulary

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class TokenisedTexts:
    """Texts as ids with both special pieces; ``cut`` counts those that were longer than the encoder reads.

    ``words``, where the task's unit is the word: for each text the position in its sequence of each word's piece.
    """

    sequences: tuple[Ids, ...]
    cut: int
    words: tuple[Ids, ...] | None = None

    def packed(self, rows: Sequence[int] | Ids, language_id: int | None = None) -> PackedTexts:
        """Pack the texts of ``rows``."""
        words = None if self.words is None else [self.words[row] for row in rows]
        return pack([self.sequences[row] for row in rows], language_id, words)

    def select(self, rows: Sequence[int] | Ids) -> TokenisedTexts:
        """Return the texts of ``rows``."""
        words = None if self.words is None else tuple(self.words[row] for row in rows)
        return TokenisedTexts(tuple(self.sequences[row] for row in rows), 0, words)

    @property
    def lengths(self) -> Ids:
        """Lengths in tokens, special pieces included: [n]."""
        return np.fromiter((len(sequence) for sequence in self.sequences), dtype=np.int64, count=len(self.sequences))


@dataclass(frozen=True)
class PackedTexts:
    """One batch of T tokens in S sequences; ``language_ids`` is None for a model without language embeddings."""

    input_ids: Tensor  # [T] int64
    position_ids: Tensor  # [T] int64
    cu_seqlens: Tensor  # [S + 1] int32
    language_ids: Tensor | None  # [T] int64
    word_positions: Tensor | None = None  # [W] int64, for tasks whose unit is the word


def tokenise(vocabulary: Vocabulary, texts: Sequence[str], max_positions: int) -> TokenisedTexts:
    """Turn texts into ``<s> text </s>``; a longer text keeps its first ``max_positions`` - 2 pieces and is counted."""
    room = max_positions - 2
    sequences: list[Ids] = []
    cut = 0
    for pieces in vocabulary.encode_batch(list(texts)):
        cut += len(pieces) > room
        sequence = np.empty(min(len(pieces), room) + 2, dtype=np.int64)
        sequence[0], sequence[-1] = vocabulary.bos_id, vocabulary.eos_id
        sequence[1:-1] = pieces[:room]
        sequences.append(sequence)
    return TokenisedTexts(tuple(sequences), cut)


def batches_by_length(lengths: Ids, tokens_per_batch: int) -> Iterator[Ids]:
    """Yield indices of texts, shortest first, at most ``tokens_per_batch`` tokens (or one text) at a time."""
    order = np.argsort(lengths, kind="stable")
    start, tokens = 0, 0
    for position, index in enumerate(order):
        length = int(lengths[index])
        if tokens and tokens + length > tokens_per_batch:
            yield order[start:position]
            start, tokens = position, 0
        tokens += length
    if start < len(order):
        yield order[start:]


def pack(sequences: Sequence[Ids], language_id: int | None = None, words: Sequence[Ids] | None = None) -> PackedTexts:
    """Lay sequences end to end; positions start at 0 in each, ``words`` are positions in their own sequence."""
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
    boundaries = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    tokens = int(boundaries[-1])
    input_ids = np.concatenate(sequences) if sequences else np.zeros(0, dtype=np.int64)
    positions = np.arange(tokens, dtype=np.int64) - np.repeat(boundaries[:-1], lengths)
    located = None
    if words is not None:
        located = torch.from_numpy(np.concatenate([own + start for own, start in zip(words, boundaries[:-1], strict=True)]))
    return PackedTexts(
        torch.from_numpy(input_ids.astype(np.int64)),
        torch.from_numpy(positions),
        torch.from_numpy(boundaries.astype(np.int32)),
        None if language_id is None else torch.full((tokens,), language_id, dtype=torch.int64),
        located,
    )
