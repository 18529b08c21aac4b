"""Rows to `PackedBatch`es: the only step from numpy to torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xlm.batching.packed_batch import OBJECTIVE_CODE, PAIRS_PER_ROW, PackedBatch, Provenance
from xlm.batching.packed_rows import Ids, PackedRows, bounds_of, joined, positions_within, ranges


@dataclass(frozen=True, slots=True)
class RowsOfBatch:
    """Rows of one objective, their indices in the global batch [R], and where their sequences came from [S] or nothing."""

    rows: PackedRows
    numbers: Ids
    provenance: Sequence[Provenance] = ()


def collate(parts: Sequence[RowsOfBatch], sizes: Sequence[int]) -> list[PackedBatch]:
    """Join the rows of all parts and cut them into micro-batches of ``sizes`` rows; of 0 rows is the empty batch.

    Micro-batches are views of what was joined.
    """
    rows = [part.rows for part in parts]
    token_ends = bounds_of(joined([of_part.sequence_lengths for of_part in rows]))
    sequence_ends = bounds_of(joined([of_part.sequences_per_row for of_part in rows]))
    # Bounds of the micro-batches, each [micro-batches + 1].
    of_sequences = sequence_ends[bounds_of(np.array(sizes, dtype=np.int64))]
    of_tokens = token_ends[of_sequences]
    before = accumulate((of_part.input_ids.size for of_part in rows), initial=0)
    positions = joined([of_part.predict_positions + start for of_part, start in zip(rows, before, strict=False)])
    of_predictions = positions.searchsorted(of_tokens)
    positions -= of_tokens[:-1].repeat(of_predictions[1:] - of_predictions[:-1])
    codes = np.array([OBJECTIVE_CODE[of_part.objective] for of_part in rows], dtype=np.int64)
    tokens, sequences, predictions = ((bounds[1:] - bounds[:-1]).tolist() for bounds in (of_tokens, of_sequences, of_predictions))
    columns = {
        "input_ids": _cut([of_part.input_ids for of_part in rows], tokens),
        "position_ids": _cut([of_part.position_ids for of_part in rows], tokens),
        "token_type_ids": _cut([of_part.token_type_ids for of_part in rows], tokens),
        "language_ids": _cut([of_part.language_ids for of_part in rows], tokens),
        "cu_seqlens": _offsets(token_ends, of_sequences),
        "predict_positions": _cut([positions], predictions),
        "labels": _cut([of_part.labels for of_part in rows], predictions),
        "prediction_objective": _cut([codes.repeat([of_part.labels.size for of_part in rows])], predictions),
        "sequence_objective": _cut([codes.repeat([of_part.sequence_lengths.size for of_part in rows])], sequences),
        "pair_key": _cut([of_part.pair_keys for of_part in rows], sequences),
        "pair_index": _cut([_pair_index(part) for part in parts], sequences),
        "sequence_label": _cut([of_part.sequence_labels for of_part in rows], sequences),
        "row_id": _cut([part.numbers.repeat(part.rows.sequences_per_row) for part in parts], sequences),
        "uniforms": _cut([np.empty(0), *(_uniforms(of_part) for of_part in rows)], predictions),
    }
    provenance = [source for part in parts for source in part.provenance]
    names = tuple(columns)
    return [
        PackedBatch(**dict(zip(names, tensors, strict=True)), provenance=tuple(provenance[first:last]))
        for tensors, (first, last) in zip(zip(*columns.values(), strict=True), pairwise(of_sequences.tolist()), strict=True)
    ]


def _pair_index(part: RowsOfBatch) -> Ids:
    sequences = part.rows.sequences_per_row
    if part.rows.objective != "contrastive":
        return np.full(part.rows.sequence_lengths.size, -1, dtype=np.int64)
    return (part.numbers * PAIRS_PER_ROW).repeat(sequences) + positions_within(sequences) // 2


def _uniforms(rows: PackedRows) -> NDArray[np.float64]:
    return np.zeros(rows.labels.size) if rows.uniforms is None else rows.uniforms


def _cut(arrays: Sequence[NDArray[Any]], sizes: Sequence[int]) -> Sequence[Tensor]:
    """Join a column and cut it into pieces of ``sizes``."""
    column = torch.from_numpy(joined(arrays))
    return (column,) if len(sizes) == 1 else torch.split_with_sizes(column, sizes)


def _offsets(token_ends: Ids, of_sequences: Ids) -> Sequence[Tensor]:
    """Return every micro-batch's ``cu_seqlens``."""
    counts = of_sequences[1:] - of_sequences[:-1] + 1
    offsets = token_ends[ranges(of_sequences[:-1], counts)] - token_ends[of_sequences[:-1]].repeat(counts)
    return _cut([offsets.astype(np.int32)], counts.tolist())
