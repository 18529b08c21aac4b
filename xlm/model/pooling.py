"""One vector a sequence: the mean of its tokens without the special pieces at its ends, or its first token."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

Pooling = Literal["mean", "first"]
_ENDS = 2


def pooled_tokens(cu_seqlens: Tensor, chosen: Tensor, pooling: Pooling) -> Tensor:
    """Return the tokens, ascending, whose states `pool` reads for the ``chosen`` [S] sequences of a batch (bool, [S of the batch])."""
    starts, lengths = cu_seqlens[:-1].long(), cu_seqlens.diff()
    if pooling == "first":
        return starts[chosen & (lengths > 0)]
    return torch.nonzero(torch.repeat_interleave(chosen, lengths)).squeeze(1)


def pool(states: Tensor, lengths: Tensor, pooling: Pooling) -> Tensor:
    """Return the vectors [S, width] in fp32 of sequences of ``lengths`` [S] from the states of their `pooled_tokens`."""
    if pooling == "first":
        return states.to(torch.float32)
    return mean_pool(states, torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]))


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
