"""Dropout whose masks depend on a key, not on how much randomness was used before.

torch's own dropout draws from a global generator, whose state a resumed run would have to restore. Here
the trainer sets a key for each micro-batch, and the n-th mask after it is a function of key and n.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xlm.seeding import Key, key_int64


class DropoutKey:
    """The key of the masks to come, shared by every `Dropout` of a model."""

    def __init__(self) -> None:
        self._parts: tuple[Key, ...] = ()
        self._drawn = 0

    def set(self, *parts: Key) -> None:
        """Start the masks of a new micro-batch, for example ``set(seed, step, micro_batch, rank)``."""
        self._parts = parts
        self._drawn = 0

    def position(self) -> tuple[tuple[Key, ...], int]:
        """Return where the masks are, for `go_to`."""
        return self._parts, self._drawn

    def go_to(self, position: tuple[tuple[Key, ...], int]) -> None:
        """Go on with the masks that came after `position`."""
        self._parts, self._drawn = position

    def next_seed(self) -> int:
        """Return the seed of the next mask."""
        self._drawn += 1
        return key_int64("dropout", *self._parts, self._drawn)


class Dropout(nn.Module):
    """Zero each number with probability ``rate`` and divide the rest by 1 - rate (Srivastava et al. 2014)."""

    def __init__(self, rate: float, key: DropoutKey) -> None:
        super().__init__()
        self.rate = rate
        self._key = key

    def forward(self, values: Tensor) -> Tensor:
        """Drop in training, return ``values`` as they are otherwise."""
        if not self.training or self.rate == 0.0:
            return values
        return values * self.mask(values.shape, values)

    def next_seed(self) -> int:
        """Return the seed of the next mask, for code that draws it itself."""
        return self._key.next_seed()

    def mask(self, shape: torch.Size | tuple[int, ...], like: Tensor) -> Tensor:
        """Draw a mask of ``shape`` that holds 0 and 1 / (1 - rate), in the type and on the device of ``like``."""
        generator = torch.Generator(device=like.device).manual_seed(self.next_seed())
        keep = torch.empty(shape, dtype=torch.float32, device=like.device).bernoulli_(1.0 - self.rate, generator=generator)
        return keep.div_(1.0 - self.rate).to(like.dtype)
