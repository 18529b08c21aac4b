"""Where DeepSpeed's ZeRO optimizers put pieces of parameters (0.19): read off their own book-keeping, nothing of DeepSpeed is imported."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from xlm.training.optimizers.pieces import Layout, Piece, part_of_each, run_of_each, whole_layout


def zero_layout(optimizer: Any, stage: int, device: torch.device) -> Layout:  # noqa: ANN401 (DeepSpeed has no types)
    """Return the layout of what ``optimizer``, as `deepspeed.initialize` returned it, hands to the one that it wraps."""
    if stage == 0:
        return whole_layout([tensor for group in optimizer.param_groups for tensor in group["params"]], device)
    pieces = _flat_groups(optimizer) if stage < 3 else _partitioned_parameters(optimizer)
    return Layout(pieces, split=dist.get_world_size() > 1, device=device)


def _flat_groups(optimizer: Any) -> dict[Tensor, tuple[Piece, ...]]:  # noqa: ANN401
    """Stages 1 and 2: a group's parameters end to end, aligned, cut into as many runs as there are ranks."""
    if hasattr(optimizer, "bf16_groups"):  # stage 1 in bf16, which aligns no parameter
        flats, groups = optimizer.fp32_groups_flat_partition, optimizer.bf16_groups
        begins = [[0, *accumulate(parameter.numel() for parameter in group)][:-1] for group in groups]
    else:
        flats, groups = optimizer.single_partition_of_fp32_groups, optimizer.round_robin_bit16_groups
        begins = optimizer.round_robin_bit16_offsets
    return {
        flat: run_of_each([tuple(parameter.shape) for parameter in group], offsets, flat.numel(), dist.get_rank())
        for flat, group, offsets in zip(flats, groups, begins, strict=True)
    }


def _partitioned_parameters(optimizer: Any) -> dict[Tensor, tuple[Piece, ...]]:  # noqa: ANN401
    """Stage 3: each parameter is cut into as many parts as there are ranks; a sub-group's parts lie end to end."""
    found = {}
    for flat, parameters in zip(optimizer.fp32_partitioned_groups_flat, optimizer.fp16_groups, strict=True):
        shapes = [tuple(parameter.ds_shape) for parameter in parameters]
        parts: Sequence[int] = [parameter.partition_numel() for parameter in parameters]
        if flat.numel() != list(accumulate(parts))[-1]:
            raise RuntimeError("DeepSpeed lays parameters out in another way than version 0.19")
        found[flat] = part_of_each(shapes, parts, dist.get_rank(), dist.get_world_size())
    return found
