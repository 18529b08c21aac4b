"""CUDA: kernels that take sequences of varying length as they lie, and torch's fused attention where there is none.

flash-attn's kernel is taken where it is installed, else torch's own (`torch.nn.attention.varlen`, torch 2.10 and
later), each for what it can do; a batch that mixes causal and bidirectional sequences takes two calls. torch's drops
no attention weights: in training with attention dropout and without flash-attn, as most published presets are, the
products of `packed` serve, whose loops over groups and tiles run in Python. No GPU was at hand when this was written:
its speed is unmeasured, and its tests run stand-ins with the kernels' signatures.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from xlm.model.attention.packed import attend_packed
from xlm.model.attention.padded import attend_padded
from xlm.model.attention.plan import AttentionPlan
from xlm.model.attention.weight_dropout import WeightDropout

# What both kernels take: 16-bit floats, and heads of at most this width in steps of 8.
KERNEL_TYPES = (torch.float16, torch.bfloat16)
WIDEST_HEAD, HEAD_STEP = 256, 8

Kernel = Callable[["Part", Tensor, float, int | None, WeightDropout | None], Tensor]


@dataclass(frozen=True)
class Part:
    """The causal or the bidirectional sequences of a batch; ``tokens`` names theirs, None where that is all."""

    tokens: Tensor | None
    cu_seqlens: Tensor  # [s + 1] int32
    longest: int
    causal: bool


def attend_varlen(qkv: Tensor, plan: AttentionPlan, scale: float, dropout: WeightDropout | None) -> Tensor:
    """Attend with the first kernel that can do it: [T, 3 * width] to [T, width]."""
    head_width = qkv.shape[1] // (3 * plan.heads)
    kernel = None
    if qkv.dtype in KERNEL_TYPES and head_width <= WIDEST_HEAD and head_width % HEAD_STEP == 0:
        kernel = _flash_attn_kernel() or _torch_kernel(plan.reach, dropout)
    if kernel is None:
        if plan.reach is None and dropout is None:
            return attend_padded(qkv, plan, scale)
        return attend_packed(qkv, plan, scale, dropout)
    split = qkv.view(plan.tokens, 3, plan.heads, head_width)
    output = qkv.new_empty(plan.tokens, plan.heads, head_width)
    for part in plan.once("parts", lambda: parts_of(plan)):
        mixed = kernel(part, split if part.tokens is None else split.index_select(0, part.tokens), scale, plan.reach, dropout)
        output = mixed if part.tokens is None else output.index_copy(0, part.tokens, mixed)
    return output.reshape(plan.tokens, plan.heads * head_width)


def parts_of(plan: AttentionPlan) -> tuple[Part, ...]:
    """Split a batch into its bidirectional and its causal sequences, where it has both."""
    device = plan.cu_seqlens.device
    lengths = np.diff(plan.bounds)
    kinds = np.unique(plan.causal[lengths > 0]).tolist()
    if len(kinds) == 1:
        return (Part(None, plan.cu_seqlens.to(torch.int32), plan.longest, kinds[0]),)
    owner = np.repeat(plan.causal, lengths)
    parts = []
    for causal in kinds:
        own = lengths[plan.causal == causal]
        cu_seqlens = torch.from_numpy(np.concatenate([[0], own.cumsum()])).to(device, torch.int32)
        parts.append(Part(torch.from_numpy(np.flatnonzero(owner == causal)).to(device), cu_seqlens, int(own.max()), causal))
    return tuple(parts)


@cache
def installed(module: str, name: str) -> Callable[..., Any] | None:
    """Return a function of a module that may be missing, or None; looked for once, as a failed import is as slow every time."""
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return None
    return function


@cache
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def _flash_attn_kernel() -> Kernel | None:
    """Return flash-attn's kernel, or None where it is not installed."""
    function = installed("flash_attn", "flash_attn_varlen_qkvpacked_func")
    if function is None:
        return None

    def kernel(part: Part, qkv: Tensor, scale: float, reach: int | None, dropout: WeightDropout | None) -> Tensor:
        def call(rate: float) -> Tensor:
            mixed: Tensor = function(
                qkv,
                part.cu_seqlens,
                part.longest,
                dropout_p=rate,
                softmax_scale=scale,
                causal=part.causal,
                window_size=_window(part, reach),
            )
            return mixed

        if dropout is None:
            return call(0.0)
        # The kernel draws from the device's own generator, and keeps its state for backward: seed it for this call only.
        devices = [qkv.device] if qkv.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(dropout.seed + part.causal)
            return call(dropout.rate)

    return kernel


def _torch_kernel(reach: int | None, dropout: WeightDropout | None) -> Kernel | None:
    """Return torch's kernel, or None where this torch has none for what is asked: it drops nothing."""
    function = installed("torch.nn.attention.varlen", "varlen_attn")
    if function is None:
        return None
    known = _parameters(function)  # windows and scales came after torch 2.10
    if dropout is not None or (reach is not None and "window_size" not in known):
        return None

    def kernel(part: Part, qkv: Tensor, scale: float, reach: int | None, dropout: WeightDropout | None) -> Tensor:
        del dropout
        query, key, value = qkv.unbind(1)
        options: dict[str, Any] = {"window_size": _window(part, reach)} if "window_size" in known else {"is_causal": part.causal}
        if "scale" in known:
            options["scale"] = scale
        else:
            query = query * (scale * qkv.shape[-1] ** 0.5)
        mixed: Tensor = function(query, key, value, part.cu_seqlens, part.cu_seqlens, part.longest, part.longest, **options)
        return mixed

    return kernel


def _window(part: Part, reach: int | None) -> tuple[int, int]:
    """Return how many tokens a query sees to its left and right, -1 for all."""
    left = -1 if reach is None else reach
    return (left, 0 if part.causal else left)
