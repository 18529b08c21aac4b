"""Sequences for torch's fused CPU kernel: consecutive ones of one length go in one call, read where they lie.

The kernel keeps one number a query (the logarithm of the softmax's denominator, Dao et al. 2022) instead of
weights. It is called with its gradient by hand: autograd would give each call's slice of the projected tokens a
gradient as large as all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(frozen=True)
class Run:
    """``count`` sequences of ``length`` tokens one after the other, the first at token ``start``."""

    start: int
    count: int
    length: int
    causal: bool
    window: Tensor | None = None  # [length, length]: what is added to scores; says all that ``causal`` does, too


def attend_runs(runs: tuple[Run, ...], qkv: Tensor, output: Tensor, scale: float) -> list[Tensor]:
    """Write the attention of ``runs`` into ``output`` [T, heads, width / heads] from ``qkv`` [T, 3, heads, same].

    Returns what backward needs of each run: [count, heads, length] fp32 (fp64 for fp64).
    """
    denominators = []
    for run in runs:
        query, key, value = (part.transpose(1, 2) for part in _part(run, qkv).unbind(2))
        causal, window = run.causal and run.window is None, _window(run, qkv)
        mixed, denominator = _FORWARD(query, key, value, 0.0, causal, attn_mask=window, scale=scale)
        _part(run, output).copy_(mixed.transpose(1, 2))
        denominators.append(denominator)
    return denominators


def differentiate_runs(
    runs: tuple[Run, ...],
    qkv: Tensor,
    output: Tensor,
    denominators: list[Tensor],
    output_gradient: Tensor,
    gradient: Tensor,
    scale: float,
) -> None:
    """Write into ``gradient`` [T, 3, heads, width / heads] what ``output_gradient`` [T, heads, same] makes of it."""
    for run, denominator in zip(runs, denominators, strict=True):
        query, key, value = (part.transpose(1, 2) for part in _part(run, qkv).unbind(2))
        arriving, mixed = (_part(run, values).transpose(1, 2) for values in (output_gradient, output))
        causal, window = run.causal and run.window is None, _window(run, qkv)
        parts = _BACKWARD(arriving, query, key, value, mixed, denominator, 0.0, causal, attn_mask=window, scale=scale)
        target = _part(run, gradient)
        for number, part in enumerate(parts):
            target[:, :, number].copy_(part.transpose(1, 2))


def window_mask(length: int, reach: int | None, *, causal: bool, device: torch.device) -> Tensor | None:
    """Return what hides tokens further away than ``reach``, and later ones where ``causal``; None where no window is that short."""
    if reach is None or length <= reach + 1:
        return None
    place = torch.arange(length, device=device)
    distance = place[:, None] - place
    hidden = (distance.abs() > reach) | (distance < 0) if causal else distance.abs() > reach
    return torch.zeros(length, length, device=device).masked_fill_(hidden, -math.inf)


def _window(run: Run, qkv: Tensor) -> Tensor | None:
    return None if run.window is None else run.window.to(qkv.dtype)


def _part(run: Run, values: Tensor) -> Tensor:
    """View the run's part of [T, ...] as [count, length, ...]."""
    own = values[run.start : run.start + run.count * run.length]
    return own.view(run.count, run.length, *values.shape[1:])
