"""Masked language modelling (BERT): each segment is a sequence of its own, ``<s> segment </s>``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlm.batching.masking import Masker
from xlm.batching.packed_rows import Ids, PackedRows, PieceIds, positions_within, starts_of, sums_by_row
from xlm.batching.texts import Texts


def mlm_rows(
    segments: Texts,
    segments_per_row: Ids,
    languages: Ids,
    *,
    pieces: PieceIds,
    masker: Masker,
    mask_rate: float,
    keys: Sequence[bytes],
) -> PackedRows:
    """Lay out rows of ``segments`` [S] in ``languages`` [S] (ids) and mask each row by its key [R]; token types are 0."""
    lengths = segments.lengths + 2
    starts = starts_of(lengths)
    ids = np.empty(int(lengths.sum()), dtype=np.int64)
    ids[starts] = pieces.bos_id
    ids[starts + lengths - 1] = pieces.eos_id
    segments.copy_to(ids, starts + 1)
    masked = masker.mask(ids, sums_by_row(lengths, segments_per_row), mask_rate, keys)
    return PackedRows(
        objective="mlm",
        input_ids=masked.input_ids,
        position_ids=positions_within(lengths),
        token_type_ids=np.zeros_like(ids),
        language_ids=np.repeat(languages, lengths),
        sequence_lengths=lengths,
        sequences_per_row=segments_per_row,
        predict_positions=masked.positions,
        labels=masked.labels,
        pair_keys=np.full_like(lengths, -1),
    )
