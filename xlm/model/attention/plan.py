"""How a packed batch goes through attention, worked out once for every layer."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt
from torch import Tensor

from xlm.errors import UserError
from xlm.model.attention.groups import Group, build_group, length_groups
from xlm.model.attention.runs import Run
from xlm.model.attention.tiles import TiledSequence, build_tiles

# The fused kernel is called once a run and needs no gathers: from this many queries (heads * length) on it wins.
FUSED_QUERIES = 256
# Below, sequences are grouped; from here on a sequence fills its own products.
TILED_LENGTH = 256

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
Made = TypeVar("Made")


@dataclass(frozen=True)
class Route:
    """Which sequences go which way; together they are all that are not empty."""

    groups: tuple[Group, ...]
    runs: tuple[Run, ...]
    tiled: tuple[TiledSequence, ...]


@dataclass(frozen=True, eq=False)
class AttentionPlan:
    """A packed batch's sequences and who sees whom, with what the ways through attention have worked out so far."""

    heads: int
    tokens: int
    longest: int
    cu_seqlens: Tensor  # [S + 1]
    bounds: Integers  # [S + 1], the same on the host
    causal: Booleans  # [S]
    reach: int | None
    _made: dict[Hashable, object] = field(default_factory=dict, repr=False)

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return what ``make`` returned when ``key`` was first asked for: layers share it."""
        if key not in self._made:
            self._made[key] = make()
        return cast(Made, self._made[key])

    def route(self, *, fused: bool) -> Route:
        """Return who goes which way, with or without torch's fused CPU kernel: a function of shapes alone."""
        return self.once(("route", fused), lambda: route_by(self, FUSED_QUERIES if fused else None, TILED_LENGTH))


def plan_attention(cu_seqlens: Tensor, heads: int, *, causal: Tensor | None = None, reach: int | None = None) -> AttentionPlan:
    """Plan for sequences with boundaries ``cu_seqlens`` [S + 1]; indices are made on its device.

    ``causal`` [S] bool: sequences whose tokens see no later one. ``reach``: tokens seen on each side, by place in
    the sequence, all where None. Raises UserError for a negative one.
    """
    if reach is not None and reach < 0:
        raise UserError(f"a local attention window reaches {reach} tokens; give 0 or more, or none at all for global attention.")
    bounds = cu_seqlens.detach().cpu().numpy().astype(np.int64)
    lengths = np.diff(bounds)
    return AttentionPlan(
        heads=heads,
        tokens=int(bounds[-1]) if len(bounds) else 0,
        longest=int(lengths.max()) if len(lengths) else 0,
        cu_seqlens=cu_seqlens,
        bounds=bounds,
        causal=np.zeros(len(lengths), dtype=np.bool_) if causal is None else causal.detach().cpu().numpy().astype(np.bool_),
        reach=reach,
    )


def route_by(plan: AttentionPlan, fused_queries: int | None, tiled_length: int) -> Route:
    """Send sequences of ``fused_queries`` (heads * length) without a window to the fused kernel, if any, other long ones to tiles."""
    lengths = np.diff(plan.bounds)
    there = lengths > 0
    unbounded = there if plan.reach is None else there & (lengths <= plan.reach + 1)
    runs = unbounded & (lengths * plan.heads >= fused_queries) if fused_queries is not None else np.zeros_like(there)
    tiled = there & ~runs & (lengths >= tiled_length)
    grouped = np.flatnonzero(there & ~runs & ~tiled)
    device = plan.cu_seqlens.device
    masks: dict[tuple[int, ...], Tensor] = {}
    return Route(
        groups=tuple(
            build_group(plan.bounds, members, plan.heads, plan.causal, plan.reach, device)
            for members in length_groups(lengths, grouped, plan.heads)
        ),
        runs=_runs(plan, np.flatnonzero(runs)),
        tiled=tuple(
            build_tiles(
                int(plan.bounds[number]),
                int(plan.bounds[number + 1]),
                plan.heads,
                causal=bool(plan.causal[number]),
                reach=plan.reach,
                masks=masks,
                device=device,
            )
            for number in np.flatnonzero(tiled)
        ),
    )


def _runs(plan: AttentionPlan, members: Integers) -> tuple[Run, ...]:
    """Join neighbours of one length that are causal or not alike."""
    runs: list[Run] = []
    for number in members.tolist():
        start, length, causal = int(plan.bounds[number]), int(plan.bounds[number + 1] - plan.bounds[number]), bool(plan.causal[number])
        last = runs[-1] if runs else None
        if last is not None and (last.length, last.causal, last.start + last.count * length) == (length, causal, start):
            runs[-1] = Run(last.start, last.count + 1, length, causal)
        else:
            runs.append(Run(start, 1, length, causal))
    return tuple(runs)
