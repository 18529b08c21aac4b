"""Self-attention inside packed sequences: padded inside attention only.

Everything else in the encoder runs on the T real tokens. For attention, sequences are sorted into a few
groups of similar length; inside a group they are padded to its longest. One gather turns the projected
``[T, 3 * width]`` into query, key and value blocks that batched matrix products read without a copy,
one gather brings the result back, and their gradients are the inverse gathers, so nothing is scattered
and added. An `AttentionPlan` holds those indices; it is built once per batch and serves every layer.

On a CPU the products are written out below: the fused kernel's backward pass is several times slower
than they are at sentence lengths, above all in bfloat16 (benchmarks/NOTES.md). Elsewhere torch's fused
attention runs on the same groups; kernels for sequences of varying length come later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.autograd.function import once_differentiable

# A group takes the sequences whose length is at least this share of its longest: below .7 padding costs
# more than calls save, above .9 the calls cost more (measured at 5-40 tokens).
GROUP_LENGTH_RATIO = 0.8
# Sequences of one group per block, so that the scores of a block stay in a core's cache.
BLOCK_SCORES = 1 << 18

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class AttentionBlock:
    """``count`` sequences padded to ``length``; its rows follow those of the blocks before it."""

    count: int
    length: int
    real: Tensor | None  # [count, length] bool, None where nothing is padded


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


def plan_attention(cu_seqlens: Tensor, heads: int) -> AttentionPlan:
    """Group the sequences of ``cu_seqlens`` [S + 1] by length; the indices live on its device."""
    device = cu_seqlens.device
    bounds = cu_seqlens.detach().cpu().numpy().astype(np.int64)
    lengths = np.diff(bounds)
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    tokens = int(bounds[-1]) if len(bounds) else 0
    return_qkv = np.empty((tokens, 3, heads), dtype=np.int64)
    return_output = np.empty((tokens, heads), dtype=np.int64)
    gather_qkv: list[Integers] = []
    gather_output: list[Integers] = []
    blocks: list[AttentionBlock] = []
    slots = 0
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
        blocks.append(AttentionBlock(len(members), length, None if real.all() else torch.from_numpy(real).to(device)))
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


def attend(qkv: Tensor, plan: AttentionPlan, keep: tuple[Tensor, ...] | None = None) -> Tensor:
    """Return softmax(q k^T / sqrt(width / heads)) v inside each sequence (Vaswani et al. 2017), [T, width].

    ``qkv`` is [T, 3 * width], queries first. ``keep`` holds one multiplier of the attention weights per
    block, [count * heads, length, length]: dropout's mask, already divided by 1 - rate.
    """
    if keep is None and qkv.device.type != "cpu":
        return _attend_fused(qkv, plan)
    output: Tensor = _GroupedAttention.apply(qkv, plan, keep)  # type: ignore[no-untyped-call]
    return output


def reference_attention(qkv: Tensor, cu_seqlens: Tensor, heads: int) -> Tensor:
    """Return the same as `attend` from one dense block mask over all T tokens: slow, plain, for tests."""
    tokens, width = qkv.shape[0], qkv.shape[1] // 3
    lengths = cu_seqlens.diff().to(torch.int64)
    sequence = torch.repeat_interleave(torch.arange(len(lengths), device=qkv.device), lengths.to(qkv.device))
    query, key, value = qkv.view(tokens, 3, heads, width // heads).permute(1, 2, 0, 3)
    scores = query @ key.transpose(-1, -2) / math.sqrt(width // heads)
    scores = scores.masked_fill(sequence[:, None] != sequence[None, :], -math.inf)
    mixed: Tensor = scores.softmax(-1) @ value
    return mixed.transpose(0, 1).reshape(tokens, width)


def _attend_fused(qkv: Tensor, plan: AttentionPlan) -> Tensor:
    """Run torch's fused attention on the plan's groups."""
    head_width = qkv.shape[1] // (3 * plan.heads)
    rows = qkv.reshape(-1, head_width).index_select(0, plan.gather_qkv)
    outputs = []
    sizes = [3 * plan.heads * block.count * block.length for block in plan.blocks]
    for block, part in zip(plan.blocks, torch.split(rows, sizes) if sizes else (), strict=True):
        query, key, value = part.view(3, block.count, plan.heads, block.length, head_width).unbind(0)
        mask = None if block.real is None else block.real[:, None, None, :]
        outputs.append(F.scaled_dot_product_attention(query, key, value, attn_mask=mask).reshape(-1, head_width))
    output = torch.cat(outputs) if outputs else rows  # no tokens, no rows: still part of the graph
    return output.index_select(0, plan.return_output).view(plan.tokens, plan.heads * head_width)


class _GroupedAttention(torch.autograd.Function):
    """`attend` as gathers and batched matrix products, with its gradient written out."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, plan: AttentionPlan, keep: tuple[Tensor, ...] | None) -> Tensor:  # noqa: ANN401
        head_width = qkv.shape[1] // (3 * plan.heads)
        with torch.autocast(qkv.device.type, enabled=False):
            rows = qkv.reshape(-1, head_width).index_select(0, plan.gather_qkv)
            output = rows.new_empty(len(plan.gather_output), head_width)
            weights = []
            for number, (block, (query, key, value), out) in enumerate(_blocks(plan, rows, output)):
                scores = torch.bmm(query, key.transpose(1, 2)).mul_(head_width**-0.5)
                if block.real is not None:
                    _per_head(scores, block).masked_fill_(~block.real[:, None, None, :], -math.inf)
                weight = torch.softmax(scores, -1)
                torch.bmm(weight if keep is None else weight * keep[number], value, out=out)
                weights.append(weight)
            if ctx.needs_input_grad[0]:
                ctx.plan, ctx.keep, ctx.shape = plan, keep, qkv.shape
                ctx.save_for_backward(rows, *weights)
            return output.index_select(0, plan.return_output).view(plan.tokens, plan.heads * head_width)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        rows, *weights = ctx.saved_tensors
        plan: AttentionPlan = ctx.plan
        head_width = rows.shape[1]
        with torch.autocast(rows.device.type, enabled=False):
            gathered = gradient.to(rows.dtype).reshape(-1, head_width).index_select(0, plan.gather_output)
            row_gradient = torch.empty_like(rows)
            pieces = zip(_blocks(plan, rows, gathered), _blocks(plan, row_gradient, gathered), weights, strict=True)
            for number, ((block, (query, key, value), out), (_, (d_query, d_key, d_value), _), weight) in enumerate(pieces):
                if block.real is not None:
                    # A padded query repeats a real token's gradient; with weights of zero it sends none on.
                    weight = (_per_head(weight, block) * block.real[:, None, :, None]).view_as(weight)
                d_weight = torch.bmm(out, value.transpose(1, 2))
                dropped = weight
                if ctx.keep is not None:
                    dropped = weight * ctx.keep[number]
                    d_weight = d_weight.mul_(ctx.keep[number])
                torch.bmm(dropped.transpose(1, 2), out, out=d_value)
                d_scores = torch._softmax_backward_data(d_weight, weight, -1, weight.dtype).mul_(head_width**-0.5)
                torch.bmm(d_scores, key, out=d_query)
                torch.bmm(d_scores.transpose(1, 2), query, out=d_key)
            return row_gradient.index_select(0, plan.return_qkv).view(ctx.shape), None, None


def _blocks(plan: AttentionPlan, rows: Tensor, output: Tensor) -> list[tuple[AttentionBlock, tuple[Tensor, ...], Tensor]]:
    """Return each block with views of its q, k, v and output, [count * heads, length, width / heads]."""
    found = []
    start = 0
    for block in plan.blocks:
        size = block.count * plan.heads * block.length
        shape = (block.count * plan.heads, block.length, rows.shape[1])
        qkv = rows[3 * start : 3 * (start + size)].view(3, *shape).unbind(0)
        found.append((block, qkv, output[start : start + size].view(shape)))
        start += size
    return found


def _per_head(scores: Tensor, block: AttentionBlock) -> Tensor:
    """View [count * heads, length, length] as [count, heads, length, length]."""
    return scores.view(block.count, -1, block.length, block.length)
