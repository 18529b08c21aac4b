"""Cross-entropy over the vocabulary without ever holding [predictions, vocabulary].

Positions are taken in chunks. A chunk's logits are turned into its losses and, in the same visit, into
the gradients of its inputs, so that the projection runs three times in all (forward and two gradients)
and nothing of vocabulary size outlives the chunk. The gradients are taken for a loss of weight 1 a
position and scaled afterwards, which is exact for the inputs, and for the table when all positions weigh
the same; otherwise the table's gradient is computed again with the weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.autograd.function import once_differentiable

# Logits a chunk holds (16 MiB in fp32), but never so few positions that reading the table dominates.
CHUNK_LOGITS = 1 << 22
MIN_CHUNK_POSITIONS = 128


def chunked_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
    """Return -log softmax(hidden weight^T + bias)[label], fp32 [P], from [P, width], [V, width], [V] and [P]."""
    if torch.is_autocast_enabled(hidden.device.type):
        hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
    losses: Tensor = _ChunkedCrossEntropy.apply(hidden, weight, bias, labels)  # type: ignore[no-untyped-call]
    return losses


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> Tensor:  # noqa: ANN401
        needed = any(ctx.needs_input_grad)
        losses = torch.empty(len(labels), dtype=torch.float32, device=hidden.device)
        with torch.autocast(hidden.device.type, enabled=False):
            table = weight.to(hidden.dtype)
            d_hidden = torch.empty_like(hidden) if needed else None
            sums = _TableGradient(weight, bias) if needed else None
            for rows in _chunks(len(labels), len(table)):
                losses[rows], d_logits = _losses_and_gradient(hidden[rows], table, bias, labels[rows])
                if d_hidden is not None and sums is not None:
                    torch.mm(d_logits, table, out=d_hidden[rows])
                    sums.add(d_logits, hidden[rows])
        if d_hidden is not None and sums is not None:
            ctx.sums = sums
            ctx.save_for_backward(hidden, weight, bias, labels, d_hidden)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:  # noqa: ANN401
        hidden, weight, bias, labels, d_hidden = ctx.saved_tensors
        sums: _TableGradient = ctx.sums
        del ctx.sums
        with torch.autocast(hidden.device.type, enabled=False):
            if len(labels) and bool((gradient == gradient[0]).all()):
                sums.scale(gradient[0])
            elif len(labels):
                sums = _weighted_table_gradient(hidden, weight, bias, labels, gradient)
            d_hidden = (d_hidden * gradient[:, None]).to(hidden.dtype)
        return d_hidden, sums.weight.to(weight.dtype), sums.bias.to(bias.dtype), None


class _TableGradient:
    """Sums of d_logits^T hidden and of d_logits, in fp32 over all chunks."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self.weight = torch.zeros_like(weight, dtype=torch.float32)
        self.bias = torch.zeros_like(bias, dtype=torch.float32)

    def add(self, d_logits: Tensor, hidden: Tensor) -> None:
        if hidden.dtype == torch.float32:
            self.weight.addmm_(d_logits.t(), hidden)
        else:
            self.weight.add_(d_logits.t() @ hidden)
        self.bias.add_((d_logits.new_ones(1, len(d_logits)) @ d_logits).squeeze(0))

    def scale(self, factor: Tensor) -> None:
        self.weight.mul_(factor)
        self.bias.mul_(factor)


def _weighted_table_gradient(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, gradient: Tensor) -> _TableGradient:
    table = weight.to(hidden.dtype)
    sums = _TableGradient(weight, bias)
    for rows in _chunks(len(labels), len(table)):
        _, d_logits = _losses_and_gradient(hidden[rows], table, bias, labels[rows])
        sums.add(d_logits.mul_(gradient[rows, None]), hidden[rows])
    return sums


def _losses_and_gradient(hidden: Tensor, table: Tensor, bias: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the losses of a chunk, fp32 [p], and softmax - onehot(label), [p, V] in the type of ``hidden``.

    The logarithm is taken of the largest probability, which is at least 1 / V, never of a vanishing one:
    loss = (largest logit - label's logit) - log(largest probability).
    """
    logits = F.linear(hidden, table, bias.to(hidden.dtype))
    below_largest = logits.amax(1).float() - logits.gather(1, labels[:, None]).squeeze(1).float()
    # In place: memory of this size comes fresh from the system, and touching it first costs more than the softmax.
    probabilities = torch.softmax(logits, dim=1, out=logits)
    losses = below_largest - probabilities.amax(1).float().log()
    return losses, probabilities.scatter_add_(1, labels[:, None], probabilities.new_full((len(labels), 1), -1.0))


def _chunks(positions: int, vocabulary: int) -> Iterator[slice]:
    size = max(MIN_CHUNK_POSITIONS, CHUNK_LOGITS // max(vocabulary, 1))
    for start in range(0, positions, size):
        yield slice(start, min(start + size, positions))
