"""Caps: the row at which a leaf has been seen often enough, and who takes over from there.

Inside a group every leaf runs with its weight until its exact share reaches the last whole row that its cap
allows; then it weighs nothing and the others take over in proportion. Between two such events a leaf's rows
are e + w * v, with v the group's rows divided by the weight that is left: on the axis of v no leaf's event
depends on another's, so they come in the order of (m - e) / w, m the row that the cap allows, and nothing is
stepped through row by row. Each event splits a plateau at a whole row.

At such a row X of the leaf (see `tree.py`) is a whole number but for what its parent passes on, so the leaf's
count is that number: it stops level with its exact share, and leaves no error behind for the others. The tree
is asked all the same: where a count did come out above its cap, the cap is lowered by that much, and all is
done again; from the third time on all leaves of such a stretch stop half a row early.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, pairwise
from math import floor

from xlm.mixing.tree import CountTree
from xlm.mixing.tree_rules import FRACTION_BITS, ONE
from xlm.mixing.tree_shape import Joins
from xlm.mixing.tree_weights import LeafWeights, Plateau, check_plateaus

# Integer weights are rounded, so that a leaf which is to reach its cap with the last row of a plateau might
# seem to reach it a moment earlier. This much of a row above the cap is no event; no count feels it.
_TOLERANCE = ONE >> 8


@dataclass(frozen=True, slots=True)
class EpochLimit:
    """In a plateau a row of a leaf is 1 / ``epoch_rows`` of an epoch; no whole number where the variants of a corpus differ.

    While the plateau lasts, the leaf's epochs since the beginning of the run stay within ``max_epochs``; without
    it they are only counted.
    """

    epoch_rows: Fraction
    max_epochs: Fraction | None


Limits = Mapping[int, EpochLimit]  # by leaf


@dataclass(frozen=True, slots=True)
class CapEvent:
    """A leaf that has been seen ``max_epochs`` times after ``row`` rows of the whole run, and gives no more."""

    leaf: int
    row: int


@dataclass(frozen=True, slots=True)
class CappedPlan:
    """Plateaus split where caps bind, for each the plateau it came from, the events in order, and the tree over it all."""

    plateaus: tuple[Plateau, ...]
    origins: tuple[int, ...]
    events: tuple[CapEvent, ...]
    tree: CountTree


@dataclass
class Exhausted(Exception):  # noqa: N818  (a finding, which the caller turns into a sentence)
    """A group has rows to draw and no leaf left: in plateau ``plateau``, after ``row`` rows of the run.

    ``drawable`` rows of the group could be drawn in this plateau.
    """

    plateau: int
    group: Hashable
    row: int
    drawable: int


def capped_plateaus(plateaus: Sequence[Plateau], limits: Sequence[Limits], groups: Sequence[Hashable]) -> CappedPlan:
    """Split plateaus where caps bind; ``limits`` are by plateau, ``groups`` has the label of every leaf.

    Plateaus of one phase should share one mapping of limits. Raises `Exhausted` where a group has rows to draw
    and no leaf left to draw them from.
    """
    check_plateaus(plateaus, groups)
    lowered: dict[tuple[int, int], int] = {}
    early: set[int] = set()
    joins: Joins | None = None
    while True:
        filling = _Filling(plateaus, limits, groups, lowered, early)
        for number in range(len(plateaus)):
            filling.fill(number)
        tree = CountTree(filling.pieces, groups, joins)
        joins = tree.joins
        excess = _excess(tree, plateaus, limits)
        if not excess:
            return CappedPlan(tuple(filling.pieces), tuple(filling.origins), tuple(filling.events), tree)
        if lowered:
            # Where many leaves stop at about the same row, one that is lowered pushes the next one up.
            early |= {stretch for stretch, _ in excess}
        for stretch_leaf, rows in excess.items():
            lowered[stretch_leaf] = lowered.get(stretch_leaf, 0) + rows


class _Filling:
    """What the leaves give in exact shares, plateau by plateau, and the pieces that the plateaus are split into."""

    def __init__(
        self,
        plateaus: Sequence[Plateau],
        limits: Sequence[Limits],
        groups: Sequence[Hashable],
        lowered: Mapping[tuple[int, int], int],
        early: Container[int],
    ) -> None:
        """``lowered`` are rows to stop short of a cap by (stretch, leaf); in the stretches ``early`` all stop half a row before it."""
        self._plateaus, self._limits, self._lowered, self._early = plateaus, limits, lowered, early
        self._starts = [0, *accumulate(plateau.rows for plateau in plateaus)]
        self._stretches = _stretches(limits)
        self._weights = LeafWeights(groups)
        self._exact = [0] * len(groups)  # rows so far, in ONE
        self._epochs = [0] * len(groups)  # likewise
        self._used_up: list[int] = []  # leaves that stand at their cap, in the order in which they reached it
        self.pieces: list[Plateau] = []
        self.origins: list[int] = []
        self.events: list[CapEvent] = []

    def fill(self, number: int) -> None:
        """Draw the rows of one plateau."""
        plateau = self._plateaus[number]
        room = self._room(number)
        # A leaf that stopped less than a row below its cap stays stopped until it is allowed more.
        self._used_up = [leaf for leaf in self._used_up if room.get(leaf, ONE) < ONE]
        gone = [*plateau.gone, *self._used_up]
        self._weights.enter(replace(plateau, gone=tuple(gone)))
        found: list[tuple[int, int]] = []  # row inside the plateau, leaf
        for group, share in self._weights.groups.items():
            if share and plateau.rows:
                found += self._fill_group(number, group, share, room)
        begun = 0
        for row, leaf in sorted(found):
            if row > begun:
                self._add(number, row - begun, gone)
                begun = row
            gone.append(leaf)
            self._used_up.append(leaf)
            self.events.append(CapEvent(leaf, self._starts[number] + row))
        self._add(number, plateau.rows - begun, gone)

    def _add(self, number: int, rows: int, gone: Sequence[int]) -> None:
        self.pieces.append(replace(self._plateaus[number], rows=rows, gone=tuple(gone)))
        self.origins.append(number)

    def _room(self, number: int) -> dict[int, int]:
        """Return, for the leaves that have a cap in a plateau, the exact share that they may still draw, in ONE."""
        room: dict[int, int] = {}
        half = ONE >> 1 if self._stretches[number] in self._early else 0
        for leaf, limit in self._limits[number].items():
            if limit.max_epochs is None:
                continue
            cap = (limit.max_epochs.numerator << FRACTION_BITS) // limit.max_epochs.denominator
            rows = limit.epoch_rows
            allowed = self._exact[leaf] + (cap - self._epochs[leaf]) * rows.numerator // rows.denominator
            whole = (allowed + _TOLERANCE >> FRACTION_BITS) - self._lowered.get((self._stretches[number], leaf), 0)
            room[leaf] = (whole << FRACTION_BITS) - self._exact[leaf] - half
        return room

    def _fill_group(self, number: int, group: Hashable, share: int, room: Mapping[int, int]) -> list[tuple[int, int]]:
        """Draw one group's rows of a plateau; returns its events as (row inside the plateau, leaf)."""
        rows, total = self._plateaus[number].rows, sum(self._weights.groups.values())
        weights = {leaf: weight for leaf in self._weights.members[group] if (weight := self._weights.leaves[leaf])}
        left = sum(weights.values())
        # On the axis v of this module's first lines, in ONE * ONE so that the lightest leaf is still exact.
        waiting = sorted(
            (max(0, (room[leaf] + _TOLERANCE << FRACTION_BITS) // weight), leaf) for leaf, weight in weights.items() if leaf in room
        )
        events: list[tuple[int, int]] = []
        at, row = 0, 0
        for due, leaf in waiting:
            if not left:
                break
            needed = max(0, due - at) * total * left // (share << 2 * FRACTION_BITS)
            if row + needed >= rows:
                break
            row += needed
            at += (needed * share << 2 * FRACTION_BITS) // (total * left)
            self._draw(number, leaf, weights[leaf] * at >> FRACTION_BITS)
            left -= weights.pop(leaf)
            events.append((row, leaf))
        if not left:
            raise Exhausted(number, group, self._starts[number] + row, row * share // total)
        at += ((rows - row) * share << 2 * FRACTION_BITS) // (total * left)
        for leaf, weight in weights.items():
            self._draw(number, leaf, weight * at >> FRACTION_BITS)
        return events

    def _draw(self, number: int, leaf: int, exact_rows: int) -> None:
        self._exact[leaf] += exact_rows
        if leaf in self._limits[number]:
            rows = self._limits[number][leaf].epoch_rows
            self._epochs[leaf] += exact_rows * rows.denominator // rows.numerator


def _stretches(limits: Sequence[Limits]) -> list[int]:
    """Return for every plateau the number of its stretch: plateaus in a row that share one mapping of limits."""
    return list(accumulate((of_plateau is not before for before, of_plateau in pairwise(limits)), initial=0))


def _excess(tree: CountTree, plateaus: Sequence[Plateau], limits: Sequence[Limits]) -> dict[tuple[int, int], int]:
    """Return by (stretch, leaf) how many rows a leaf has drawn more than its cap allows."""
    excess: dict[tuple[int, int], int] = {}
    epochs: dict[int, Fraction] = {}
    ends = list(accumulate(plateau.rows for plateau in plateaus))
    stretches = _stretches(limits)
    before = tree.counts(0)
    for number, stretch in enumerate(stretches):
        if stretches[number + 1 : number + 2] == [stretch]:
            continue  # counts never fall, so the end of a stretch speaks for all of it
        after = tree.counts(ends[number])
        for leaf, limit in limits[number].items():
            drawn, used = int(after[leaf] - before[leaf]), epochs.get(leaf, Fraction(0))
            if limit.max_epochs is not None and drawn > (allowed := max(0, floor((limit.max_epochs - used) * limit.epoch_rows))):
                excess[stretch, leaf] = drawn - allowed
            epochs[leaf] = used + drawn / limit.epoch_rows
        before = after
    return excess
