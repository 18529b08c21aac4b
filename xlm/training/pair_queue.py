"""Pairs of earlier steps that serve as negatives: first in, first out (MoCo, He et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from xlm.errors import UserError
from xlm.training.contrastive import Pairs


class PairQueue:
    """The last ``capacity`` pairs pushed, as a ring; the same on every rank, for all push the pairs of the whole step.

    Memory: 8 bytes x capacity x (width + 3).
    """

    def __init__(self, capacity: int, width: int, device: torch.device) -> None:
        # A place that nothing was pushed to is never looked at.
        self._vectors = torch.zeros(2, capacity, width, device=device)  # sources, targets
        self._names = torch.zeros(capacity, 3, dtype=torch.int64, device=device)  # key, texts
        self._pushed = 0

    def __len__(self) -> int:
        return min(self._pushed, len(self._names))

    def pairs(self) -> Pairs:
        """Return what is in the queue, in the order of its places; no copies."""
        count = len(self)
        keys, texts = self._names[:count, 0], self._names[:count, 1:]
        return Pairs(self._vectors[0, :count], self._vectors[1, :count], keys, keys, texts)

    @torch.no_grad()
    def push(self, pairs: Pairs) -> None:
        """Take up the pairs of a step in their order; those pushed longest ago make room."""
        capacity, count = len(self._names), len(pairs.keys)
        kept = slice(max(0, count - capacity), None)
        places = (self._pushed + torch.arange(count, device=self._names.device)[kept]) % capacity
        self._vectors[0, places] = pairs.sources[kept].detach()
        self._vectors[1, places] = pairs.targets[kept].detach()
        self._names[places] = torch.cat([pairs.keys[:, None], pairs.texts], dim=1)[kept]
        self._pushed += count

    def state(self) -> dict[str, Tensor]:
        """Return what `load` takes up."""
        return {"vectors": self._vectors, "names": self._names, "pushed": torch.tensor(self._pushed)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take up a saved state; raises UserError for a queue of another size."""
        vectors, names = state["vectors"], state["names"]
        if (vectors.shape, names.shape) != (self._vectors.shape, self._names.shape):
            raise UserError(
                f"the checkpoint holds a queue of {vectors.shape[1]:,} pairs of width {vectors.shape[2]}, the recipe asks for "
                f"{self._vectors.shape[1]:,} of width {self._vectors.shape[2]}; go on with the recipe of the run."
            )
        self._vectors.copy_(vectors)
        self._names.copy_(names)
        self._pushed = int(state["pushed"])
