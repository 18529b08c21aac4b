"""Rows of the contrastive objective: both sides of a pair as sequences of their own, nothing masked.

Sentences are compared as a whole, so the encoder sees them as it will at evaluation: ``<s> source </s>``,
then ``<s> target </s>``. The pair's key travels along, because two translations of one source must not be
taken for negatives of each other.

``mixup`` joins neighbours of a row: ``<s> source source' </s>``, then ``<s> target target' </s>`` (`xlm.batching.mixup`).
A joined pair is a negative of every other but one of the same two.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from xlm.batching.arrangement import Arrangement
from xlm.batching.keyed_words import Words, scramble
from xlm.batching.mixup import units
from xlm.batching.packed_rows import Ids, PieceIds, starts_of
from xlm.batching.texts import RowTexts
from xlm.seeding import key_int64


def separate_pairs(texts: RowTexts, seeds: Words, mixup: float, pieces: PieceIds) -> Arrangement:
    """Arrange each pair as two sequences, source then target; with probability ``mixup`` two pairs, a text after the other."""
    count = texts.items.size
    if mixup == 0.0:
        return Arrangement(
            texts=np.arange(2 * count).reshape(2, count).T.ravel(),
            opened=np.ones(2 * count, dtype=np.bool_),
            opening_id=pieces.bos_id,
            stretches_per_sequence=np.ones(2 * count, dtype=np.int64),
            sequences_per_row=2 * texts.segments_per_row,
        )
    pairs, per_row = units(seeds, texts.segments_per_row, mixup)
    there = pairs >= 0
    sides = np.stack([pairs, pairs + count], axis=1)[np.stack([there, there], axis=1)]  # unit by unit, source then target
    stretches = np.repeat(there.sum(axis=1), 2)
    ends = stretches.cumsum()
    opened, closed = np.zeros((2, sides.size), dtype=np.bool_)
    opened[ends - stretches], closed[ends - 1] = True, True
    return Arrangement(
        texts=sides,
        opened=opened,
        closed=closed,
        opening_id=pieces.bos_id,
        stretches_per_sequence=stretches,
        sequences_per_row=2 * per_row,
    )


def pair_keys(keys: Sequence[str], arrangement: Arrangement) -> Ids:
    """Return the numbers [S] that stand for the keys [pairs] of what each sequence holds, the same for both sides of a unit.

    Two pairs that are joined have a number of their own, whichever comes first.
    """
    of_pairs = np.array([pair_key_id(key) for key in keys], dtype=np.int64)
    of_stretches = of_pairs[arrangement.texts % len(keys)]
    stretches = arrangement.stretches_per_sequence
    if of_stretches.size == stretches.size:
        return of_stretches
    sums = np.add.reduceat(scramble(of_stretches.view(np.uint64).copy()), starts_of(stretches))
    joined: Ids = (scramble(sums) >> np.uint64(1)).astype(np.int64)
    return np.where(stretches == 1, of_stretches[starts_of(stretches)], joined)


@lru_cache(maxsize=1 << 16)
def pair_key_id(key: str) -> int:
    """Return the 63-bit number that stands for a pair's key in a batch."""
    return key_int64("pair", key)
