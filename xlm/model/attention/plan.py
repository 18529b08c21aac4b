"""Where each token of a packed batch stands inside attention, worked out once a batch for every layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

# A group takes the sequences whose length is at least this share of its longest: below .7 padding costs
# more than calls save, above .9 the calls cost more (measured at 5-40 tokens).
GROUP_LENGTH_RATIO = 0.8
# Sequences of one group per block, so that the scores of a block stay in a core's cache.
BLOCK_SCORES = 1 << 18

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class AttentionBlock:
    """``count`` sequences padded to ``length``; its rows follow those of the blocks before it."""

    count: int
    length: int
    real: Tensor | None  # [count, length] bool, None where nothing is padded
    allowed: Tensor | None  # [count, 1 or length, length] bool: the keys a query sees, None where it sees all


@dataclass(frozen=True)
class AttentionPlan:
    """Where each token of a packed batch stands inside attention.

    A row is the part of one head, ``width / heads`` numbers. With T tokens, H heads and N padded slots:
    """

    heads: int
    tokens: int
    longest: int
    blocks: tuple[AttentionBlock, ...]
    gather_qkv: Tensor  # [3 * H * N] rows of [T, 3, H]; order: block, (q, k, v), sequence, head, slot
    return_qkv: Tensor  # [T * 3 * H] its inverse on real tokens
    gather_output: Tensor  # [H * N] rows of [T, H]; order: block, sequence, head, slot
    return_output: Tensor  # [T * H] its inverse on real tokens


def plan_attention(cu_seqlens: Tensor, heads: int, *, causal: Tensor | None = None, reach: int | None = None) -> AttentionPlan:
    """Group the sequences of ``cu_seqlens`` [S + 1] by length; the indices live on its device.

    ``causal`` [S] bool: sequences whose tokens see no later one; ``reach``: tokens seen on each side, all where None.
    """
    device = cu_seqlens.device
    bounds = cu_seqlens.detach().cpu().numpy().astype(np.int64)
    lengths = np.diff(bounds)
    one_sided = np.zeros(len(lengths), dtype=bool) if causal is None else causal.detach().cpu().numpy().astype(bool)
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    tokens = int(bounds[-1]) if len(bounds) else 0
    return_qkv = np.empty((tokens, 3, heads), dtype=np.int64)
    return_output = np.empty((tokens, heads), dtype=np.int64)
    gather_qkv: list[Integers] = []
    gather_output: list[Integers] = []
    blocks: list[AttentionBlock] = []
    slots = 0

    def mask(values: Booleans) -> Tensor:
        return torch.from_numpy(values).to(device)

    for members in _length_groups(order, lengths, heads):
        length = int(lengths[members].max())
        offsets = np.arange(length)
        real = offsets < lengths[members][:, None]
        # A padded slot repeats the sequence's last token: any finite value serves, it is masked.
        token = bounds[members][:, None] + np.minimum(offsets, lengths[members][:, None] - 1)
        head_row = token[:, None, :] * heads + np.arange(heads)[None, :, None]
        qkv_row = (token[None, :, None, :] * 3 + np.arange(3)[:, None, None, None]) * heads + np.arange(heads)[None, None, :, None]
        own = np.arange(head_row.size).reshape(head_row.shape) + slots * heads
        own_qkv = np.arange(qkv_row.size).reshape(qkv_row.shape) + slots * heads * 3
        return_output[token[real]] = own.transpose(0, 2, 1)[real]
        return_qkv[token[real]] = own_qkv.transpose(1, 3, 0, 2)[real]
        gather_output.append(head_row.ravel())
        gather_qkv.append(qkv_row.ravel())
        allowed = _allowed(lengths[members], one_sided[members], reach)
        blocks.append(AttentionBlock(len(members), length, None if real.all() else mask(real), None if allowed is None else mask(allowed)))
        slots += real.size

    def index(parts: list[Integers]) -> Tensor:
        return torch.from_numpy(np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)).to(device)

    return AttentionPlan(
        heads=heads,
        tokens=tokens,
        longest=int(lengths.max()) if len(lengths) else 0,
        blocks=tuple(blocks),
        gather_qkv=index(gather_qkv),
        return_qkv=torch.from_numpy(return_qkv.ravel()).to(device),
        gather_output=index(gather_output),
        return_output=torch.from_numpy(return_output.ravel()).to(device),
    )


def _length_groups(order: Integers, lengths: Integers, heads: int) -> list[Integers]:
    """Cut ``order`` (sequences by length) where the length falls below the ratio, or a block is full."""
    groups: list[Integers] = []
    end = len(order)
    while end > 0:
        longest = int(lengths[order[end - 1]])
        start = int(np.searchsorted(lengths[order[:end]], longest * GROUP_LENGTH_RATIO, side="left"))
        most = max(1, BLOCK_SCORES // (heads * longest * longest))
        start = max(start, end - most)
        groups.append(order[start:end])
        end = start
    return groups[::-1]


def _allowed(lengths: Integers, causal: Booleans, reach: int | None) -> Booleans | None:
    """Return which keys each query of a group sees, [count, 1 or longest, longest], or None where all see all."""
    longest = int(lengths.max())
    slots = np.arange(longest)
    real = slots < lengths[:, None]
    if reach is None or longest <= reach + 1:
        reach = longest
    if reach == longest and not causal.any():
        return None if real.all() else real[:, None, :]
    place = np.minimum(slots, lengths[:, None] - 1)  # a padded query repeats the last token, so that it sees something
    distance = place[:, :, None] - slots[None, None, :]
    allowed: Booleans = real[:, None, :] & ((distance >= 0) | ~causal[:, None, None]) & (abs(distance) <= reach)
    return allowed
