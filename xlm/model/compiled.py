"""Operations that torch.compile makes of the feed-forward part's activation and its gradient.

Whole layers are not compiled: keyed dropout and gradients of our own would cut them into dozens of graphs, which take minutes.
These two functions are one graph each for any number of tokens (benchmarks/NOTES.md says what they gain).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from xlm.errors import UserError
from xlm.model.feed_forward import FeedForward, Operations, activated


def for_any_tokens(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Compile a function of tensors [T, ...] once, whatever T is."""
    run = torch.compile(function, fullgraph=True)

    def call(*arguments: Any) -> Tensor:  # noqa: ANN401
        for value in arguments:
            # 0 and 1 are numbers that the compiler would bake in.
            if isinstance(value, Tensor) and value.dim() == 2 and len(value) > 1:
                torch._dynamo.mark_dynamic(value, 0)
        return run(*arguments)

    return call


def activation_gradient(gradient: Tensor, inner: Tensor, gated: bool, approximate: str) -> Tensor:
    """Return what the feed-forward part's own gradient does, without writing into places: that is the compiler's work."""
    backward = torch.ops.aten.gelu_backward
    if not gated:
        return backward(gradient, inner, approximate=approximate)  # type: ignore[no-any-return]
    values, gate = inner.chunk(2, dim=-1)
    d_gate = F.gelu(values, approximate=approximate) * gradient
    return torch.cat([backward(gradient * gate, values, approximate=approximate), d_gate], dim=-1)


def compile_activations(model: nn.Module) -> None:
    """Have all feed-forward parts of a model compute with compiled operations; UserError where nothing can be compiled here."""
    parts = [part for part in model.modules() if isinstance(part, FeedForward)]
    operations = Operations(for_any_tokens(activated), for_any_tokens(activation_gradient))
    if parts:
        _try(operations, parts[0])
    for part in parts:
        part.operations = operations


def _try(operations: Operations, part: FeedForward) -> None:
    weight = part.inner.weight
    inner = weight.new_zeros(2, weight.shape[0])
    try:
        made = operations.activated(inner, part.gated, part.approximate)
        operations.gradient(made, inner, part.gated, part.approximate)
    except Exception as error:  # a compiler may fail in any way
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise UserError(f"torch.compile does not work here ({reason[:200]}); set training.compile to false.") from error
