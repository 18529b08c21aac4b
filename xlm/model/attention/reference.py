"""The plain masked softmax that every other path is held against."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def reference_attention(
    qkv: Tensor,
    cu_seqlens: Tensor,
    heads: int,
    *,
    causal: Tensor | None = None,
    reach: int | None = None,
    scale: float | None = None,
) -> Tensor:
    """Return the same as `attend` [T, width] from one dense mask over all T tokens: slow, plain, for tests.

    ``qkv`` is [T, 3 * width], queries first; ``causal`` [S] bool; softmax(q k^T * scale) v of Vaswani et al. (2017).
    """
    tokens, width = qkv.shape[0], qkv.shape[1] // 3
    lengths = cu_seqlens.diff().to(qkv.device, torch.int64)
    sequence = torch.repeat_interleave(torch.arange(len(lengths), device=qkv.device), lengths)
    place = torch.arange(tokens, device=qkv.device)
    distance = place[:, None] - place[None, :]  # of query to key, both in one sequence or not
    allowed = sequence[:, None] == sequence[None, :]
    if causal is not None:
        allowed = allowed & ((distance >= 0) | ~causal.to(qkv.device)[sequence][:, None])
    if reach is not None:
        allowed = allowed & (distance.abs() <= reach)
    query, key, value = qkv.view(tokens, 3, heads, width // heads).permute(1, 2, 0, 3)
    scores = query @ key.transpose(-1, -2) * (1.0 / math.sqrt(width // heads) if scale is None else scale)
    weights = scores.masked_fill(~allowed, -math.inf).softmax(-1)
    mixed: Tensor = weights @ value
    return mixed.transpose(0, 1).reshape(tokens, width)
