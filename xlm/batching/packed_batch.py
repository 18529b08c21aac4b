"""What a model is fed: sequences laid end to end, no padding anywhere.

Shapes: T tokens, S sequences, P predictions (positions whose original piece is to be predicted).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from xlm.config.phases import Objective

# Codes of `sequence_objective` and `prediction_objective`, in the order of metrics tables.
OBJECTIVES: tuple[Objective, ...] = ("mlm", "tlm", "contrastive", "clm", "nsp", "sop", "rtd")
PAIRS_PER_ROW = 1 << 16
OBJECTIVE_CODE = {name: code for code, name in enumerate(OBJECTIVES)}


@dataclass(frozen=True, slots=True)
class SegmentSource:
    """Where a segment came from: tokens ``start`` to ``end`` of item ``item`` of a corpus.

    A pair's target counts on from the end of its source, as in the row plan.
    """

    corpus: str
    item: int
    name: str  # the document's id or the pair's key
    start: int
    end: int


Provenance = tuple[SegmentSource, ...]  # the segments of one sequence, in its order


@dataclass(frozen=True)
class PackedBatch:
    """One micro-batch. Attention never crosses a boundary of ``cu_seqlens``.

    Contrastive sequences come in twos: source, then its translation, with the same ``pair_key`` and
    ``pair_index``; on other sequences both are -1. ``pair_index`` is the row's index in the global batch times
    `PAIRS_PER_ROW` plus the pair's place in the row, so that the logical group of negatives and its order are
    the same for any number of ranks. A CLM prediction's label is the piece after its position, and attention of
    its sequence is causal. NSP and SOP sequences carry a ``sequence_label`` beside their MLM predictions: 0 where
    B follows A; 1 where B is of another document (NSP) or comes first (SOP).
    """

    input_ids: Tensor  # [T] int64
    position_ids: Tensor  # [T] int64
    token_type_ids: Tensor  # [T] int64
    language_ids: Tensor  # [T] int64, index into the data plan's languages
    cu_seqlens: Tensor  # [S + 1] int32, starts with 0, ends with T
    predict_positions: Tensor  # [P] int64, index into tokens
    labels: Tensor  # [P] int64, original pieces
    prediction_objective: Tensor  # [P] int64, codes of OBJECTIVES
    sequence_objective: Tensor  # [S] int64
    pair_key: Tensor  # [S] int64
    pair_index: Tensor  # [S] int64
    sequence_label: Tensor  # [S] int64, -1 except for NSP and SOP
    row_id: Tensor  # [S] int64, index of the row within the global batch
    # [P] float64 in [0, 1): draws the generator's piece at a position of RTD; 0 elsewhere. The loader always has them;
    # batches that are only encoded (evaluation) need none.
    uniforms: Tensor | None = None
    provenance: tuple[Provenance, ...] = ()  # [S], for people; empty unless asked for

    @property
    def tokens(self) -> int:
        """Number of tokens T."""
        return int(self.input_ids.numel())

    @property
    def sequences(self) -> int:
        """Number of sequences S."""
        return int(self.cu_seqlens.numel()) - 1

    def to(self, device: torch.device | str) -> PackedBatch:
        """Copy the tensors to a device (asynchronously from pinned memory)."""
        moved: dict[str, Any] = {
            field.name: value.to(device, non_blocking=True) if isinstance(value := getattr(self, field.name), Tensor) else value
            for field in fields(self)
        }
        return PackedBatch(**moved)
