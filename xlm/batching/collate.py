"""Rows to one `PackedBatch`: the only step from numpy to torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from xlm.batching.packed_batch import OBJECTIVE_CODE, PackedBatch
from xlm.batching.row_tokens import Ids, RowTokens


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A row and its place in the global batch: its index, and how many pairs the rows before it hold."""

    row_id: int
    tokens: RowTokens
    first_pair: int = 0
    provenance: Sequence[str] = ()


def collate(rows: Sequence[BatchRow]) -> PackedBatch:
    """Join rows into one batch; no rows give the empty batch (0 tokens, 0 sequences)."""
    tokens = [row.tokens for row in rows]
    sequence_lengths = _joined([row.sequence_lengths for row in tokens])
    sequences = [row.sequence_lengths.size for row in tokens]
    sizes = np.array([row.input_ids.size for row in tokens], dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    objectives = np.array([OBJECTIVE_CODE[row.objective] for row in tokens], dtype=np.int64)
    predictions = [row.predict_positions.size for row in tokens]
    cu_seqlens = np.zeros(sequence_lengths.size + 1, dtype=np.int32)
    np.cumsum(sequence_lengths, out=cu_seqlens[1:])
    return PackedBatch(
        input_ids=_tensor([row.input_ids for row in tokens]),
        position_ids=_tensor([row.position_ids for row in tokens]),
        token_type_ids=_tensor([row.token_type_ids for row in tokens]),
        language_ids=_tensor([row.language_ids for row in tokens]),
        cu_seqlens=torch.from_numpy(cu_seqlens),
        predict_positions=_tensor([row.predict_positions + start for row, start in zip(tokens, starts.tolist(), strict=True)]),
        labels=_tensor([row.labels for row in tokens]),
        prediction_objective=torch.from_numpy(np.repeat(objectives, predictions)),
        sequence_objective=torch.from_numpy(np.repeat(objectives, sequences)),
        pair_key=_tensor([row.pair_keys for row in tokens]),
        pair_index=_tensor([_pair_index(row) for row in rows]),
        row_id=torch.from_numpy(np.repeat(np.array([row.row_id for row in rows], dtype=np.int64), sequences)),
        provenance=tuple(source for row in rows for source in row.provenance),
    )


def _pair_index(row: BatchRow) -> Ids:
    sequences = row.tokens.sequence_lengths.size
    if row.tokens.objective != "contrastive":
        return np.full(sequences, -1, dtype=np.int64)
    return row.first_pair + np.arange(sequences, dtype=np.int64) // 2


def _joined(arrays: Sequence[Ids]) -> Ids:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)


def _tensor(arrays: Sequence[Ids]) -> Tensor:
    return torch.from_numpy(_joined(arrays))
