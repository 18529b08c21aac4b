"""The feed-forward part of a block and its activations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from xlm.config.model import ModelConfig
from xlm.model.initialisation import unfilled_linear

# Hendrycks & Gimpel 2016: exact, and by its tanh approximation (as BERT's first code and ALBERT compute it).
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "geglu": F.gelu,
}


def activation(config: ModelConfig) -> Callable[[Tensor], Tensor]:
    """Return the function that blocks and heads apply number by number."""
    return _ACTIVATIONS[config.activation]


class FeedForward(nn.Module):
    """Two linear maps with an activation between them; GeGLU multiplies half of the first map's numbers by the other
    half's GELU (Shazeer 2020).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gated = config.activation == "geglu"
        self.activation = activation(config)
        self.inner = unfilled_linear(config.width, config.feed_forward * (2 if self.gated else 1), bias=config.biases)
        self.output = unfilled_linear(config.feed_forward, config.width, bias=config.biases)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map [T, width] to [T, width]."""
        inner = self.inner(hidden)
        if self.gated:
            activated, gate = inner.chunk(2, dim=-1)
            return self.output(self.activation(activated) * gate)  # type: ignore[no-any-return]
        return self.output(self.activation(inner))  # type: ignore[no-any-return]
