"""Attention over all parts of a plan as one step of the graph, with its gradient written out.

It keeps the projected tokens as they came, its output and one number a query where the fused kernel ran, and no
second copy of queries, keys and values. Weights are kept for sequences no longer than a head is wide; for longer
ones backward makes them again, which saves [heads, L] numbers a token (benchmarks/NOTES.md).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from xlm.model.attention.groups import attend_groups, differentiate_groups
from xlm.model.attention.plan import AttentionPlan, Route
from xlm.model.attention.runs import attend_runs, differentiate_runs
from xlm.model.attention.tiles import attend_tiles, differentiate_tiles
from xlm.model.attention.weight_dropout import WeightDropout


def attend_packed(qkv: Tensor, plan: AttentionPlan, scale: float, dropout: WeightDropout | None) -> Tensor:
    """Attend by the plan's route for this precision: [T, 3 * width] to [T, width].

    The fused kernel serves fp32 and fp64 where nothing is dropped; in bf16 its gradient is several times slower
    than products are (benchmarks/NOTES.md), and so they serve at every length.
    """
    fused = qkv.device.type == "cpu" and dropout is None and qkv.dtype in (torch.float32, torch.float64)
    output: Tensor = PackedAttention.apply(qkv, plan, plan.route(fused=fused, sixteen_bits=qkv.element_size() == 2), scale, dropout)  # type: ignore[no-untyped-call]
    return output


class PackedAttention(torch.autograd.Function):
    """One function for groups, runs and tiles, because each writes its own tokens of one output."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, plan: AttentionPlan, route: Route, scale: float, dropout: WeightDropout | None) -> Tensor:  # noqa: ANN401
        """Return [T, width]."""
        qkv = qkv.contiguous()
        heads, tokens = plan.heads, qkv.shape[0]
        head_width = qkv.shape[1] // (3 * heads)
        rows = qkv.view(-1, head_width)
        written = qkv.new_empty(tokens * heads + 1, head_width)  # the last row is where padded slots go
        output = written[:-1].view(tokens, heads, head_width)
        split = qkv.view(tokens, 3, heads, head_width)
        masks = None if dropout is None else dropout.multipliers(qkv.device)
        with torch.autocast(qkv.device.type, enabled=False):
            weights = attend_groups(route.groups, rows, written, heads, scale, masks)
            denominators = attend_runs(route.runs, split, output, scale)
            attend_tiles(route.tiled, split, output, scale, masks)
        if ctx.needs_input_grad[0]:
            ctx.heads, ctx.route, ctx.scale, ctx.dropout, ctx.weights = heads, route, scale, dropout, len(weights)
            ctx.save_for_backward(qkv, *weights, *((output, *denominators) if denominators else ()))
        return output.view(tokens, heads * head_width)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, output_gradient: Tensor) -> tuple[Tensor, None, None, None, None]:  # noqa: ANN401
        """Return the gradient of qkv."""
        qkv, *saved = ctx.saved_tensors
        weights, fused = saved[: ctx.weights], saved[ctx.weights :]
        heads, scale, route = ctx.heads, ctx.scale, ctx.route
        tokens, head_width = qkv.shape[0], qkv.shape[1] // (3 * heads)
        arriving = output_gradient.to(qkv.dtype).contiguous().view(tokens, heads, head_width)
        written = qkv.new_empty(3 * tokens * heads + 1, head_width)
        gradient = written[:-1].view(tokens, 3, heads, head_width)
        split = qkv.view(gradient.shape)
        masks = None if ctx.dropout is None else ctx.dropout.multipliers(qkv.device)
        with torch.autocast(qkv.device.type, enabled=False):
            rows = qkv.view(-1, head_width)
            differentiate_groups(route.groups, rows, arriving.view(-1, head_width), written, heads, scale, masks, weights)
            if fused:
                differentiate_runs(route.runs, split, fused[0], fused[1:], arriving, gradient, scale)
            differentiate_tiles(route.tiled, split, arriving, gradient, scale, masks)
        return gradient.view(qkv.shape), None, None, None, None
