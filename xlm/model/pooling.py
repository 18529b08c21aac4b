"""One vector a sequence: the mean of its tokens without the special pieces at its ends."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

_ENDS = 2


def mean_pool(hidden: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Average [T, width] over the tokens of each sequence but the first and last, fp32 [S, width].

    A sequence with nothing else is averaged over all it has; one without tokens gives zeros.
    """
    device = hidden.device
    starts, ends = cu_seqlens[:-1].to(device, torch.int64), cu_seqlens[1:].to(device, torch.int64)
    lengths = ends - starts
    has_inside = (lengths > _ENDS).to(torch.int64)
    sequence = torch.repeat_interleave(torch.arange(len(lengths), device=device), lengths)
    token = torch.arange(hidden.shape[0], device=device)
    inside = (token >= (starts + has_inside)[sequence]) & (token < (ends - has_inside)[sequence])
    counts = (lengths - _ENDS * has_inside).clamp(min=1)
    weights = inside.to(torch.float32) / counts[sequence]
    with torch.autocast(device.type, enabled=False):
        # Sums each sequence's rows in one order on every device, where `index_add` on CUDA adds atomically, in any.
        return functional.embedding_bag(token, hidden.to(torch.float32), starts, mode="sum", per_sample_weights=weights)
