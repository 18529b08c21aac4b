"""Rows of the contrastive objective: both sides of a pair as sequences of their own, nothing masked.

Sentences are compared as a whole, so the encoder sees them as it will at evaluation: ``<s> source </s>``,
then ``<s> target </s>``. The pair's key travels along, because two translations of one source must not be
taken for negatives of each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlm.batching.row_tokens import NO_PREDICTIONS, Ids, PieceIds, Pieces, RowTokens, positions_within


def contrastive_row(
    pairs: Sequence[tuple[Pieces, Pieces]], pair_keys: Sequence[int], language_ids: tuple[int, int], *, pieces: PieceIds
) -> RowTokens:
    """Lay out ``pairs`` (source and target, each [tokens]); ``pair_keys`` [pairs] are equal where pairs say the same thing."""
    begin, end = (np.array([special], dtype=np.int64) for special in (pieces.bos_id, pieces.eos_id))
    ids: Ids = np.concatenate([part for pair in pairs for side in pair for part in (begin, side, end)], dtype=np.int64)
    lengths = np.array([len(side) + 2 for pair in pairs for side in pair], dtype=np.int64)
    return RowTokens(
        objective="contrastive",
        input_ids=ids,
        position_ids=positions_within(lengths),
        token_type_ids=np.zeros(ids.size, dtype=np.int64),
        language_ids=np.repeat(np.tile(np.array(language_ids, dtype=np.int64), len(pairs)), lengths),
        sequence_lengths=lengths,
        predict_positions=NO_PREDICTIONS,
        labels=NO_PREDICTIONS,
        pair_keys=np.repeat(np.array(pair_keys, dtype=np.int64), 2),
    )
