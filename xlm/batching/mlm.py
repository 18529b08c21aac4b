"""Masked language modelling (BERT): each segment is a sequence of its own, ``<s> segment </s>``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlm.batching.masking import Masker
from xlm.batching.row_tokens import Ids, PieceIds, Pieces, RowTokens, positions_within


def mlm_row(
    segments: Sequence[Pieces],
    language_id: int,
    *,
    pieces: PieceIds,
    masker: Masker,
    mask_rate: float,
    generator: np.random.Generator,
) -> RowTokens:
    """Lay out ``segments`` (each [tokens], no special pieces) of one language and mask them; token types are 0."""
    begin, end = (np.array([special], dtype=np.int64) for special in (pieces.bos_id, pieces.eos_id))
    ids: Ids = np.concatenate([part for segment in segments for part in (begin, segment, end)], dtype=np.int64)
    lengths = np.array([len(segment) + 2 for segment in segments], dtype=np.int64)
    masked = masker.mask(ids, mask_rate, generator)
    return RowTokens(
        objective="mlm",
        input_ids=masked.input_ids,
        position_ids=positions_within(lengths),
        token_type_ids=np.zeros(ids.size, dtype=np.int64),
        language_ids=np.full(ids.size, language_id, dtype=np.int64),
        sequence_lengths=lengths,
        predict_positions=masked.positions,
        labels=masked.labels,
        pair_keys=np.full(lengths.size, -1, dtype=np.int64),
    )
