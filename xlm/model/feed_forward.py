"""The feed-forward part of a block and its activations.

What a layer keeps for its backward pass is mostly the feed-forward part's: the numbers before the activation, and
those after it, both wider than the layer. The latter are computed again where they are needed instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from xlm.config.model import ModelConfig
from xlm.model.initialisation import unfilled_linear


def activation(config: ModelConfig) -> Callable[[Tensor], Tensor]:
    """Return the function that heads apply number by number: GELU (Hendrycks & Gimpel 2016), exact or by tanh."""
    approximate = _approximation(config)

    def gelu(values: Tensor) -> Tensor:
        return F.gelu(values, approximate=approximate)

    return gelu


def _approximation(config: ModelConfig) -> str:
    # BERT's first code and ALBERT approximate the normal distribution by a tanh.
    return "tanh" if config.activation == "gelu_tanh" else "none"


@dataclass(frozen=True)
class Operations:
    """What works number by number: the activation of (inner, gated, approximate), and the gradient of inner from that of it."""

    activated: Callable[[Tensor, bool, str], Tensor]
    gradient: Callable[[Tensor, Tensor, bool, str], Tensor]


class FeedForward(nn.Module):
    """Two linear maps with an activation between them.

    GeGLU multiplies the GELU of half of the first map's numbers by the other half (Shazeer 2020).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gated = config.activation == "geglu"
        self.approximate = _approximation(config)
        self.operations = PLAIN
        self.inner = unfilled_linear(config.width, config.feed_forward * (2 if self.gated else 1), bias=config.biases)
        self.output = unfilled_linear(config.feed_forward, config.width, bias=config.biases)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map [T, width] to [T, width]."""
        output: Tensor = _ActivatedLinear.apply(  # type: ignore[no-untyped-call]
            self.inner(hidden), self.output.weight, self.output.bias, self.gated, self.approximate, self.operations
        )
        return output


class _ActivatedLinear(torch.autograd.Function):
    """A linear map of activated numbers that keeps the numbers before the activation only."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        inner: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        gated: bool,
        approximate: str,
        operations: Operations,
    ) -> Tensor:
        ctx.save_for_backward(inner, weight)
        ctx.gated, ctx.approximate, ctx.operations = gated, approximate, operations
        ctx.bias_type = None if bias is None else bias.dtype
        return F.linear(operations.activated(inner, gated, approximate), weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None, None]:  # noqa: ANN401
        inner, weight = ctx.saved_tensors
        gated, approximate, operations = ctx.gated, ctx.approximate, ctx.operations
        with torch.autocast(gradient.device.type, enabled=False):
            d_activated = gradient @ weight.to(gradient.dtype)
            d_weight = (gradient.t() @ operations.activated(inner, gated, approximate).to(gradient.dtype)).to(weight.dtype)
            d_bias = None if ctx.bias_type is None else gradient.sum(0).to(ctx.bias_type)
            d_inner = operations.gradient(d_activated.to(inner.dtype), inner, gated, approximate)
            return d_inner, d_weight, d_bias, None, None, None


def activated(inner: Tensor, gated: bool, approximate: str) -> Tensor:
    """Return the activation of [T, inner width], half as wide where it is gated."""
    if not gated:
        return F.gelu(inner, approximate=approximate)
    values, gate = inner.chunk(2, dim=-1)
    return F.gelu(values, approximate=approximate).mul_(gate)


def activation_gradient(gradient: Tensor, inner: Tensor, gated: bool, approximate: str) -> Tensor:
    """Return the gradient of ``inner`` from that of `activated`."""
    if not gated:
        return torch.ops.aten.gelu_backward(gradient, inner, approximate=approximate)  # type: ignore[no-any-return]
    values, gate = inner.chunk(2, dim=-1)
    # Written where it belongs: fresh memory for each half and then for both costs twice the arithmetic.
    both = torch.empty_like(inner)
    d_values, d_gate = both.chunk(2, dim=-1)
    torch.mul(F.gelu(values, approximate=approximate), gradient, out=d_gate)
    torch.mul(gradient, gate, out=d_values)
    torch.ops.aten.gelu_backward.grad_input(d_values, values, approximate=approximate, grad_input=d_values)
    return both


PLAIN = Operations(activated, activation_gradient)
