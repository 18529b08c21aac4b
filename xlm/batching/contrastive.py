"""Rows of the contrastive objective: both sides of a pair as sequences of their own, nothing masked.

Sentences are compared as a whole, so the encoder sees them as it will at evaluation: ``<s> source </s>``,
then ``<s> target </s>``. The pair's key travels along, because two translations of one source must not be
taken for negatives of each other.
"""

from __future__ import annotations

import numpy as np

from xlm.batching.packed_rows import NO_IDS, Ids, PackedRows, PieceIds, positions_within, starts_of
from xlm.batching.texts import Texts


def contrastive_rows(sources: Texts, targets: Texts, pairs_per_row: Ids, languages: Ids, pair_keys: Ids, *, pieces: PieceIds) -> PackedRows:
    """Lay out rows of pairs; two sequences a pair.

    ``sources`` and ``targets`` are [pairs] texts, ``languages`` the ids of both sides, [pairs, 2];
    ``pair_keys`` [pairs] are equal where pairs say the same thing.
    """
    lengths = np.stack([sources.lengths, targets.lengths], axis=1).ravel() + 2
    starts = starts_of(lengths)
    ids = np.empty(int(lengths.sum()), dtype=np.int64)
    ids[starts] = pieces.bos_id
    ids[starts + lengths - 1] = pieces.eos_id
    sources.copy_to(ids, starts[0::2] + 1)
    targets.copy_to(ids, starts[1::2] + 1)
    return PackedRows(
        objective="contrastive",
        input_ids=ids,
        position_ids=positions_within(lengths),
        token_type_ids=np.zeros_like(ids),
        language_ids=np.repeat(languages.ravel(), lengths),
        sequence_lengths=lengths,
        sequences_per_row=2 * pairs_per_row,
        predict_positions=NO_IDS,
        labels=NO_IDS,
        pair_keys=np.repeat(pair_keys, 2),
    )
