"""Attention on groups of similar length, padded inside attention only: gathers and batched products."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.autograd.function import once_differentiable

from xlm.model.attention.plan import AttentionBlock, AttentionPlan


def attend_fused(qkv: Tensor, plan: AttentionPlan, scale: float) -> Tensor:
    """Run torch's fused attention on the plan's groups."""
    head_width = qkv.shape[1] // (3 * plan.heads)
    rows = qkv.reshape(-1, head_width).index_select(0, plan.gather_qkv)
    outputs = []
    sizes = [3 * plan.heads * block.count * block.length for block in plan.blocks]
    for block, part in zip(plan.blocks, torch.split(rows, sizes) if sizes else (), strict=True):
        query, key, value = part.view(3, block.count, plan.heads, block.length, head_width).unbind(0)
        mask = None if block.allowed is None else block.allowed[:, None]
        outputs.append(F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale).reshape(-1, head_width))
    output = torch.cat(outputs) if outputs else rows  # no tokens, no rows: still part of the graph
    return output.index_select(0, plan.return_output).view(plan.tokens, plan.heads * head_width)


class GroupedAttention(torch.autograd.Function):
    """`attend` as gathers and batched matrix products, with its gradient written out."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, plan: AttentionPlan, scale: float, keep: tuple[Tensor, ...] | None) -> Tensor:  # noqa: ANN401
        """Attend; ``keep`` holds one multiplier of the weights per block, [count * heads, length, length]."""
        head_width = qkv.shape[1] // (3 * plan.heads)
        with torch.autocast(qkv.device.type, enabled=False):
            rows = qkv.reshape(-1, head_width).index_select(0, plan.gather_qkv)
            output = rows.new_empty(len(plan.gather_output), head_width)
            weights = []
            for number, (block, (query, key, value), out) in enumerate(_blocks(plan, rows, output)):
                scores = torch.bmm(query, key.transpose(1, 2)).mul_(scale)
                if block.allowed is not None:
                    _per_head(scores, block).masked_fill_(~block.allowed[:, None], -math.inf)
                weight = torch.softmax(scores, -1)
                torch.bmm(weight if keep is None else weight * keep[number], value, out=out)
                weights.append(weight)
            if ctx.needs_input_grad[0]:
                ctx.plan, ctx.keep, ctx.scale, ctx.shape = plan, keep, scale, qkv.shape
                ctx.save_for_backward(rows, *weights)
            return output.index_select(0, plan.return_output).view(plan.tokens, plan.heads * head_width)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        """Return the gradient of qkv."""
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
                d_scores = torch._softmax_backward_data(d_weight, weight, -1, weight.dtype).mul_(ctx.scale)
                torch.bmm(d_scores, key, out=d_query)
                torch.bmm(d_scores.transpose(1, 2), query, out=d_key)
            return row_gradient.index_select(0, plan.return_qkv).view(ctx.shape), None, None, None


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
