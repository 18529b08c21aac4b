"""Rows to `PackedBatch`es: the only step from numpy to torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from xlm.batching.packed_batch import OBJECTIVE_CODE, PAIRS_PER_ROW, PackedBatch, Provenance
from xlm.batching.packed_rows import NO_IDS, Ids, PackedRows, positions_within


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
    lengths = _joined([of_part.sequence_lengths for of_part in rows])
    per_row = _joined([of_part.sequences_per_row for of_part in rows])
    token_ends, sequence_ends, row_ends = _ends(lengths), _ends(per_row), _ends(np.array(sizes, dtype=np.int64))
    of_sequences = sequence_ends[row_ends]  # [micro-batches + 1], as the next two
    of_tokens = token_ends[of_sequences]
    part_tokens = _ends(np.array([of_part.input_ids.size for of_part in rows], dtype=np.int64)).tolist()
    positions = _joined([of_part.predict_positions + start for of_part, start in zip(rows, part_tokens, strict=False)])
    of_predictions = np.searchsorted(positions, of_tokens)
    positions -= np.repeat(of_tokens[:-1], np.diff(of_predictions))
    codes = [OBJECTIVE_CODE[of_part.objective] for of_part in rows]
    tokens, sequences, predictions = (_cutter(bounds) for bounds in (of_tokens, of_sequences, of_predictions))
    columns = {
        "input_ids": tokens([of_part.input_ids for of_part in rows]),
        "position_ids": tokens([of_part.position_ids for of_part in rows]),
        "token_type_ids": tokens([of_part.token_type_ids for of_part in rows]),
        "language_ids": tokens([of_part.language_ids for of_part in rows]),
        "cu_seqlens": _offsets(token_ends, of_sequences),
        "predict_positions": predictions([positions]),
        "labels": predictions([of_part.labels for of_part in rows]),
        "prediction_objective": predictions([np.repeat(codes, [of_part.labels.size for of_part in rows])]),
        "sequence_objective": sequences([np.repeat(codes, [of_part.sequence_lengths.size for of_part in rows])]),
        "pair_key": sequences([of_part.pair_keys for of_part in rows]),
        "pair_index": sequences([_pair_index(part) for part in parts]),
        "sequence_label": sequences([of_part.sequence_labels for of_part in rows]),
        "row_id": sequences([np.repeat(part.numbers, part.rows.sequences_per_row) for part in parts]),
    }
    provenance = [source for part in parts for source in part.provenance]
    return [
        PackedBatch(**{name: column[number] for name, column in columns.items()}, provenance=tuple(provenance[first:last]))
        for number, (first, last) in enumerate(pairwise(of_sequences.tolist()))
    ]


def _pair_index(part: RowsOfBatch) -> Ids:
    sequences = part.rows.sequences_per_row
    if part.rows.objective != "contrastive":
        return np.full(part.rows.sequence_lengths.size, -1, dtype=np.int64)
    return np.repeat(part.numbers * PAIRS_PER_ROW, sequences) + positions_within(sequences) // 2


def _ends(lengths: Ids) -> Ids:
    ends = np.zeros(lengths.size + 1, dtype=np.int64)
    np.cumsum(lengths, out=ends[1:])
    return ends


def _joined(arrays: Sequence[Ids]) -> Ids:
    if len(arrays) == 1:
        return arrays[0].astype(np.int64, copy=False)
    return np.concatenate(arrays) if arrays else NO_IDS


def _cutter(bounds: Ids) -> Callable[[Sequence[Ids]], Sequence[Tensor]]:
    """Return what joins the arrays of a column and cuts it at ``bounds``."""
    sizes = np.diff(bounds).tolist()

    def cut(arrays: Sequence[Ids]) -> Sequence[Tensor]:
        column = torch.from_numpy(_joined(arrays))
        return (column,) if len(sizes) == 1 else column.split(sizes)

    return cut


def _offsets(token_ends: Ids, of_sequences: Ids) -> list[Tensor]:
    """Return every micro-batch's ``cu_seqlens``."""
    of_batches = [token_ends[first : last + 1] for first, last in pairwise(of_sequences.tolist())]
    return [torch.from_numpy((ends - ends[0]).astype(np.int32)) for ends in of_batches]
