"""Plateaus, and what every node of a count tree weighs in each of them, as integers.

Everything from here on is integer arithmetic, so that counts are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The largest weight of a group becomes this integer, the others in proportion, rounded down: a share moves by
# less than 10^-18, and a weight that keeps its ratio to the largest keeps its integer from plateau to plateau.
FULL = 1 << 60

# Any, because mappings are invariant in their keys, and labels are of the type that the caller likes.
Shares = Mapping[Any, Fraction | int]
Weights = Mapping[int, Fraction | int]


@dataclass(frozen=True, slots=True)
class Plateau:
    """A stretch of ``rows`` rows over which every weight stays; nothing need be normalised, what is missing has 0.

    ``gone`` are leaves that weigh 0 here whatever ``weights`` says, in the order in which they left. Where one
    leaf after another drops out, all plateaus then share one mapping, and only what changed is looked at.
    """

    rows: int
    shares: Shares  # of every group of leaves
    weights: Weights  # of every leaf inside its group
    gone: Sequence[int] = ()


def in_full(weights: Iterable[Fraction | int]) -> list[int]:
    """Return weights as integers of which the largest is `FULL`; zeros stay zeros."""
    weights = list(weights)
    largest = max(weights, default=0)
    if not largest:
        return [0] * len(weights)
    # Multiplied crosswise: a new Fraction for each of millions of weights would take minutes.
    times, over = FULL * largest.denominator, largest.numerator
    return [weight.numerator * times // (weight.denominator * over) for weight in weights]


def check_plateaus(plateaus: Sequence[Plateau], groups: Sequence[Hashable]) -> None:
    """Raise ValueError for plateaus that no rows can be counted over."""
    if not plateaus or not groups:
        raise ValueError("rows are counted over at least one plateau and one leaf")
    leaves, labels = len(groups), set(groups)
    checked: object = None
    for plateau in plateaus:
        if plateau.rows < 0:
            raise ValueError(f"a plateau cannot have {plateau.rows} rows")
        if any(share < 0 for share in plateau.shares.values()) or not any(plateau.shares.values()):
            raise ValueError("a plateau needs shares of which one is above 0 and none below")
        if any(label not in labels for label, share in plateau.shares.items() if share):
            raise ValueError(f"a group that has a share needs leaves; groups with leaves: {', '.join(sorted(map(str, labels)))}")
        if plateau.weights is checked:
            continue
        checked = plateau.weights
        if any(weight < 0 for weight in plateau.weights.values()):
            raise ValueError("a weight cannot be negative")
        if any(not 0 <= leaf < leaves for leaf in plateau.weights):
            raise ValueError(f"weights name leaves that are not among the {leaves} there are")


class LeafWeights:
    """The weights of leaves and groups in one plateau after another, as integers."""

    def __init__(self, groups: Sequence[Hashable]) -> None:
        self.members: dict[Hashable, list[int]] = {}
        for leaf, label in enumerate(groups):
            self.members.setdefault(label, []).append(leaf)
        self.leaves = [0] * len(groups)  # inside its group
        self.groups: dict[Hashable, int] = dict.fromkeys(self.members, 0)
        self._weights: Weights = MappingProxyType({})
        self._shares: Shares = MappingProxyType({})
        self._gone: Sequence[int] = ()

    def enter(self, plateau: Plateau) -> tuple[list[int] | None, bool]:
        """Take on a plateau's weights; returns the leaves that changed (None: all may have), and whether shares changed."""
        changed: list[int] | None
        if plateau.weights is self._weights and tuple(plateau.gone[: len(self._gone)]) == tuple(self._gone):
            changed = [leaf for leaf in plateau.gone[len(self._gone) :] if self.leaves[leaf]]
            for leaf in changed:
                self.leaves[leaf] = 0
        else:
            changed = None
            for of_group in self.members.values():
                for leaf, weight in zip(of_group, in_full(plateau.weights.get(leaf, 0) for leaf in of_group), strict=True):
                    self.leaves[leaf] = weight
            for leaf in plateau.gone:
                self.leaves[leaf] = 0
        self._weights, self._gone = plateau.weights, plateau.gone
        new_shares = plateau.shares is not self._shares and plateau.shares != self._shares
        self._shares = plateau.shares
        if new_shares:
            units = in_full(plateau.shares.get(label, 0) for label in self.members)
            self.groups = dict(zip(self.members, units, strict=True))
        return changed, new_shares

    def shares(self) -> NDArray[np.float64]:
        """Return every leaf's share of all rows in the present plateau: [leaves], rounded to floating point."""
        shares = np.zeros(len(self.leaves))
        of_all = sum(self.groups.values())
        for label, of_group in self.members.items():
            total = sum(self.leaves[leaf] for leaf in of_group)
            if total and self.groups[label]:
                of_label = self.groups[label] / of_all
                shares[of_group] = [of_label * (self.leaves[leaf] / total) for leaf in of_group]
        return shares


class NodeWeights:
    """What the nodes of a tree weigh: inside a group in the group's units, from a group's top upwards in shares."""

    def __init__(self, leaf_weights: LeafWeights, children: Sequence[tuple[int, int]], tops: Mapping[Hashable, int]) -> None:
        """``children`` are the two children of every inner node; the k-th inner node has number leaves + k."""
        self._leaf_weights, self._children, self._tops = leaf_weights, children, tops
        self._leaves = len(leaf_weights.leaves)
        nodes = self._leaves + len(children)
        self.parents = [-1] * nodes
        for inner, sides in enumerate(children, self._leaves):
            for side in sides:
                self.parents[side] = inner
        self._inside = [0] * nodes
        self._above = dict.fromkeys(tops.values(), 0)
        self._above_tops: list[int] = []  # ascending: children before their parents
        for inner, (left, _) in enumerate(children, self._leaves):
            if left in self._above:
                self._above[inner] = 0
                self._above_tops.append(inner)
        above_tops = set(self._above_tops)
        self._inside_groups = [inner for inner in range(self._leaves, nodes) if inner not in above_tops]
        self._all = list(range(nodes - 1, self._leaves - 1, -1))

    def enter(self, plateau: Plateau) -> list[int]:
        """Take on a plateau; returns the inner nodes whose sides may weigh otherwise and all above them, the root first."""
        weights, inside, above = self._leaf_weights, self._inside, self._above
        changed, new_shares = weights.enter(plateau)
        touched: set[int] = set()
        if changed is None:
            inside[: self._leaves] = weights.leaves
            for inner in self._inside_groups:
                left, right = self._children[inner - self._leaves]
                inside[inner] = inside[left] + inside[right]
        else:
            for leaf in changed:
                lost, node = inside[leaf], leaf
                inside[leaf] = 0
                while (node := self.parents[node]) >= 0:
                    inside[node] -= lost
                    touched.add(node)
        if new_shares:
            for label, top in self._tops.items():
                above[top] = weights.groups[label]
            for inner in self._above_tops:
                left, right = self._children[inner - self._leaves]
                above[inner] = above[left] + above[right]
                touched.add(inner)
        if plateau.rows and any(share and not inside[self._tops[label]] for label, share in weights.groups.items()):
            raise ValueError("a group that has a share needs a leaf that has weight")
        return self._all if changed is None else sorted(touched, reverse=True)

    def sides(self, inner: int) -> tuple[int, int]:
        """Return what the two sides of an inner node weigh, in one unit."""
        left, right = self._children[inner - self._leaves]
        if left in self._above:
            return self._above[left], self._above[right]
        return self._inside[left], self._inside[right]
