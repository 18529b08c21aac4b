"""How a packed batch goes through attention, worked out once for every layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt
from torch import Tensor

from xlm.errors import UserError
from xlm.model.attention.groups import Group, build_group, length_groups
from xlm.model.attention.runs import Run, window_mask
from xlm.model.attention.tiles import TiledSequence, build_tiles

# The fused kernel is called once a run and needs no gathers: from this length and this many queries (heads * length) on it wins.
FUSED_LENGTH, FUSED_QUERIES = 64, 256
# With a window it computes every pair all the same: up to this many times the window's width that costs less than tiles.
FUSED_WINDOWS = 2
# Below, sequences are grouped; from here on a sequence fills its own products.
TILED_LENGTH = 256
# Products of 16 bits are several times faster, so that groups pay for longer: until the scores of one sequence (heads * length^2), with a
# window or without, leave the cache.
TILED_SCORES_16_BITS, TILED_WINDOW_SCORES_16_BITS = 1 << 23, 1 << 22

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

    def route(self, *, fused: bool, sixteen_bits: bool = False) -> Route:
        """Return who goes which way, with or without torch's fused CPU kernel: a function of shapes and precision alone."""
        scores = TILED_SCORES_16_BITS if self.reach is None else TILED_WINDOW_SCORES_16_BITS
        tiled = math.isqrt(scores // self.heads) if sixteen_bits else TILED_LENGTH
        return self.once(("route", fused, tiled), lambda: route_by(self, fused=fused, tiled_length=tiled))


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


def route_by(plan: AttentionPlan, *, fused: bool, tiled_length: int) -> Route:
    """Send sequences that are long enough, and not too long for their window, to the ``fused`` kernel, other long ones to tiles."""
    lengths = np.diff(plan.bounds)
    there = lengths > 0
    runs = there & (lengths >= FUSED_LENGTH) & (lengths * plan.heads >= FUSED_QUERIES) & fused
    if plan.reach is not None:
        runs &= lengths <= max(plan.reach + 1, FUSED_WINDOWS * (2 * plan.reach + 1))
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
    masks: dict[tuple[int, bool], Tensor | None] = {}
    for number in members.tolist():
        start, length, causal = int(plan.bounds[number]), int(plan.bounds[number + 1] - plan.bounds[number]), bool(plan.causal[number])
        last = runs[-1] if runs else None
        if last is not None and (last.length, last.causal, last.start + last.count * length) == (length, causal, start):
            runs[-1] = replace(last, count=last.count + 1)
            continue
        form = (length, causal)
        if form not in masks:
            masks[form] = window_mask(length, plan.reach, causal=causal, device=plan.cu_seqlens.device)
        runs.append(Run(start, 1, length, causal, masks[form]))
    return tuple(runs)
