"""Rows of the contrastive objective: both sides of a pair as sequences of their own, nothing masked.

Sentences are compared as a whole, so the encoder sees them as it will at evaluation: ``<s> source </s>``,
then ``<s> target </s>``. The pair's key travels along, because two translations of one source must not be
taken for negatives of each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from xlm.batching.arrangement import Arrangement
from xlm.batching.packed_rows import Ids, PieceIds
from xlm.batching.texts import RowTexts
from xlm.seeding import key_int64


def separate_pairs(texts: RowTexts, pieces: PieceIds) -> Arrangement:
    """Arrange each pair as two sequences, source then target."""
    count = texts.items.size
    return Arrangement(
        texts=np.arange(2 * count).reshape(2, count).T.ravel(),
        opened=np.ones(2 * count, dtype=np.bool_),
        opening_id=pieces.bos_id,
        stretches_per_sequence=np.ones(2 * count, dtype=np.int64),
        sequences_per_row=2 * texts.segments_per_row,
    )


def pair_key_ids(keys: Sequence[str]) -> Ids:
    """Return the numbers that stand for pairs' keys in a batch, one for each of a pair's two sequences: [2 x pairs]."""
    return np.repeat(np.array([pair_key_id(key) for key in keys], dtype=np.int64), 2)


@lru_cache(maxsize=1 << 16)
def pair_key_id(key: str) -> int:
    """Return the 63-bit number that stands for a pair's key in a batch."""
    return key_int64("pair", key)
