"""Dropout of attention weights whose masks backward draws again instead of keeping them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from xlm.model.dropout import Dropout


@dataclass(frozen=True)
class WeightDropout:
    """What one attention call drops: everything follows from ``seed``, so it is 8 bytes and not [L, L]."""

    rate: float
    seed: int

    def multipliers(self, device: torch.device) -> MultiplierStream:
        """Start the masks of this call; they come in the order in which they are asked for."""
        return MultiplierStream(self.rate, torch.Generator(device=device).manual_seed(self.seed))


@dataclass(frozen=True)
class MultiplierStream:
    """Masks from one generator, in turn."""

    rate: float
    generator: torch.Generator

    def next(self, weight: Tensor) -> Tensor:
        """Return the next mask, 0 or 1 / (1 - rate), of the shape and type of ``weight``."""
        return torch.empty_like(weight).bernoulli_(1.0 - self.rate, generator=self.generator).div_(1.0 - self.rate)


def active_dropout(dropout: Dropout | None) -> WeightDropout | None:
    """Return what the next call drops, or None where nothing is; takes one seed from the module's key."""
    if dropout is None or not dropout.training or dropout.rate <= 0.0:
        return None
    return WeightDropout(dropout.rate, dropout.next_seed())
