"""Layers that keep their inputs alone: everything else is computed a second time when backward needs it (Chen et al. 2016).

The graph of a layer stays the same, and so do all numbers: what it would have kept is made again from the input, the
parameters and the same dropout masks, which depend on a key and not on a generator's state. PyTorch's non-reentrant
checkpoint does it. The second run ends with the last number that backward needs: ZeRO 3 relies on that, since its hook
behind the module whose backward pass is under way would release that module's parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import TracebackType
from typing import Any

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from xlm.model.dropout import DropoutKey


def recomputed(layer: Callable[..., Tensor], *inputs: Any, key: DropoutKey) -> Tensor:  # noqa: ANN401
    """Return ``layer(*inputs)``, keeping its inputs alone; ``key`` is what its dropout masks are drawn by."""
    output: Tensor = checkpoint(
        layer,
        *inputs,
        use_reentrant=False,
        preserve_rng_state=False,
        context_fn=lambda: (nullcontext(), _SameMasks(key)),
    )
    return output


class _SameMasks:
    """Inside of it a key gives the masks that it gave from where it was made on; a second backward enters it again."""

    def __init__(self, key: DropoutKey) -> None:
        self._key = key
        self._then = key.position()

    def __enter__(self) -> None:
        self._now = self._key.position()
        self._key.go_to(self._then)

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._key.go_to(self._now)
