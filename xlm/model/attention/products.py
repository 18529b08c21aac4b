"""Batched products that every hand-written path shares, and the weights they make."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def scaled_product(left: Tensor, right: Tensor, scale: float, out: Tensor | None = None) -> Tensor:
    """Return scale * left @ right, [n, a, b], the factor applied inside the product."""
    result = left.new_empty(left.shape[0], left.shape[1], right.shape[2]) if out is None else out
    return torch.baddbmm(result, left, right, beta=0, alpha=scale, out=result)


def attention_weights(query: Tensor, key: Tensor, scale: float, hidden: Tensor | None) -> Tensor:
    """Return softmax(scale * q k^T) over the keys, [n, queries, keys].

    ``hidden`` [n / heads or 1, 1, queries or 1, keys] marks what a query does not see; each must see something.
    """
    scores = scaled_product(query, key.transpose(1, 2), scale)
    if hidden is not None:
        blocks = max(1, hidden.shape[0])
        scores.view(blocks, -1, *scores.shape[1:]).masked_fill_(hidden, -math.inf)
    return torch.softmax(scores, -1)


def score_gradient(output_gradient: Tensor, value: Tensor, weight: Tensor, multiplier: Tensor | None) -> Tensor:
    """Return the gradient of the scores before they were scaled by q k^T's factor, [n, queries, keys].

    ``multiplier`` is dropout's, of the weights. The softmax's own gradient is weight * (d - sum(d * weight)).
    """
    gradient = torch.bmm(output_gradient, value.transpose(1, 2))
    if multiplier is not None:
        gradient.mul_(multiplier)
    return torch._softmax_backward_data(gradient, weight, -1, weight.dtype)
