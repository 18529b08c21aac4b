"""Rows to one `PackedBatch`: the only step from numpy to torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from xlm.batching.packed_batch import OBJECTIVE_CODE, PackedBatch
from xlm.batching.packed_rows import NO_IDS, Ids, PackedRows, positions_within


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """Rows and their places in the global batch: the index of each [R], and the pairs that the rows before it hold [R]."""

    rows: PackedRows
    row_ids: Ids
    first_pairs: Ids
    provenance: Sequence[str] = ()


def collate(parts: Sequence[PlacedRows]) -> PackedBatch:
    """Join rows into one batch; nothing to join gives the empty batch (0 tokens, 0 sequences)."""
    rows = [part.rows for part in parts]
    sequence_lengths = _joined([row.sequence_lengths for row in rows])
    codes = np.array([OBJECTIVE_CODE[row.objective] for row in rows], dtype=np.int64)
    sizes = [row.input_ids.size for row in rows]
    starts = np.cumsum([0, *sizes])[:-1].tolist()
    cu_seqlens = np.zeros(sequence_lengths.size + 1, dtype=np.int32)
    np.cumsum(sequence_lengths, out=cu_seqlens[1:])
    return PackedBatch(
        input_ids=_tensor([row.input_ids for row in rows]),
        position_ids=_tensor([row.position_ids for row in rows]),
        token_type_ids=_tensor([row.token_type_ids for row in rows]),
        language_ids=_tensor([row.language_ids for row in rows]),
        cu_seqlens=torch.from_numpy(cu_seqlens),
        predict_positions=_tensor([row.predict_positions + start for row, start in zip(rows, starts, strict=True)]),
        labels=_tensor([row.labels for row in rows]),
        prediction_objective=torch.from_numpy(np.repeat(codes, [row.labels.size for row in rows])),
        sequence_objective=torch.from_numpy(np.repeat(codes, [row.sequence_lengths.size for row in rows])),
        pair_key=_tensor([row.pair_keys for row in rows]),
        pair_index=_tensor([_pair_index(part) for part in parts]),
        row_id=_tensor([np.repeat(part.row_ids, part.rows.sequences_per_row) for part in parts]),
        provenance=tuple(source for part in parts for source in part.provenance),
    )


def _pair_index(part: PlacedRows) -> Ids:
    sequences = part.rows.sequences_per_row
    if part.rows.objective != "contrastive":
        return np.full(int(sequences.sum()), -1, dtype=np.int64)
    return np.repeat(part.first_pairs, sequences) + positions_within(sequences) // 2


def _joined(arrays: Sequence[Ids]) -> Ids:
    return np.concatenate(arrays) if arrays else NO_IDS


def _tensor(arrays: Sequence[Ids]) -> Tensor:
    return torch.from_numpy(_joined(arrays))
