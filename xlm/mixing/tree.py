"""How many rows each leaf (a corpus under an objective) has given after n rows, at any n, in O(depth).

Promise 1 needs counts that are a function of n alone, that add up to n, never fall, and stay within a
row of the exact share. A binary tree gives all four: of the n rows that reach a node its left child gets

    floor(X(n) + 1/2),    X(n) = L + (n - N) * l / (l + r)

and its right child the rest. l and r are the weights of the two sides in the plateau that n lies in, N
and L the *exact* shares of the node and of its left side at the start of that plateau. X grows by at
most one per row, so neither side ever falls, and a rounding error is multiplied by l / (l + r) on its way
down a level. `tree_shape.py` says how far a leaf may be off, and joins the leaves so that it is least.

Anchoring X at the exact shares, instead of at the counts that were reached, keeps the errors of one
plateau from adding to those of the next. X may then step by less than a row where the weights change;
the count waits, or takes every row, until X has come level again. A side of weight 0 gets nothing.

A node whose sides keep their ratio keeps its rule, and where a leaf drops out only the nodes above it are
looked at: a plateau costs what changes in it.

Two simpler forms are wrong: rounding cumulative weights gives counts that fall, and due times at
k - 1/2 are off by hundreds of rows where many weights are equal.
"""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from xlm.mixing.tree_bound import TreeBound
from xlm.mixing.tree_rules import FRACTION_BITS, NodeRules, Rule, due_left, most_of_side
from xlm.mixing.tree_shape import Joins, best_joins, judged_plateaus
from xlm.mixing.tree_weights import LeafWeights, NodeWeights, Plateau, check_plateaus

# Plateaus whose rules are kept unpacked: those of the two ends of a window, and their neighbours.
_UNPACKED_PLATEAUS = 4


class CountTree:
    """Cumulative row counts of leaves whose weights change from plateau to plateau.

    ``groups`` (one label a leaf) keeps the leaves of a label in one subtree, so that the label's share
    holds within a row in every window of rows, not only each leaf's. ``joins`` is a shape made before, of a
    tree over nearly the same plateaus.
    """

    def __init__(self, plateaus: Sequence[Plateau], groups: Sequence[Hashable], joins: Joins | None = None) -> None:
        check_plateaus(plateaus, groups)
        self.leaves = len(groups)
        self.starts = [0, *accumulate(plateau.rows for plateau in plateaus)]
        self.total_rows = self.starts[-1]
        self.joins = joins if joins is not None else best_joins(_judged_shares(plateaus, groups), groups)
        self._root = self.leaves + len(self.joins) - 1
        self._tops = _tops(self.joins, groups)
        weights = NodeWeights(LeafWeights(groups), self.joins, self._tops)
        self._parents = weights.parents
        self._rules = [NodeRules() for _ in self.joins]
        bound = TreeBound(self.leaves, self.joins)
        for number, plateau in enumerate(plateaus):
            self._begin(number, weights.enter(plateau), weights, bound)
        # No count is further from its exact share, in rows, while weights stay as they were in any one plateau.
        self.bound = bound.rows()
        self._unpacked: dict[int, list[Rule | None]] = {}

    def _begin(self, plateau: int, touched: Sequence[int], weights: NodeWeights, bound: TreeBound) -> None:
        """Begin a plateau at the nodes that it touches; they come from the root down, each after its parent."""
        leaves, nodes = self.leaves, len(self._parents)
        exact, arrived = [0] * nodes, [0] * nodes
        exact[self._root], arrived[self._root] = self.starts[plateau] << FRACTION_BITS, self.starts[plateau]
        for node in touched:
            rules = self._rules[node - leaves]
            exact_node, rows = exact[node], arrived[node]
            exact_left, left_rows = rules.exact_left(exact_node), due_left(rules.last, rows)
            left_weight, right_weight = weights.sides(node)
            if rules.begin(plateau, left_weight, right_weight, exact_node, exact_left, rows, left_rows):
                bound.change(node, left_weight, right_weight)
            left, right = self.joins[node - leaves]
            exact[left], exact[right] = exact_left, exact_node - exact_left
            arrived[left], arrived[right] = left_rows, rows - left_rows
        bound.take()

    def counts(self, rows: int) -> NDArray[np.int64]:
        """Return the cumulative count of every leaf after ``rows`` rows overall: [leaves] int64, summing to ``rows``."""
        counts = np.zeros(self.leaves, dtype=np.int64)
        for leaf, _, last in self.between(0, rows):
            counts[leaf] = last
        return counts

    def count(self, leaf: int, rows: int) -> int:
        """Return one leaf's cumulative count after ``rows`` rows overall, in O(depth)."""
        return self._arrived(leaf, rows)

    def group_count(self, group: Hashable, rows: int) -> int:
        """Return the cumulative count of all leaves of a group after ``rows`` rows overall."""
        return self._arrived(self._tops[group], rows)

    def between(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """Return (leaf, its count at ``start``, its count at ``stop``) of every leaf that has rows in [start, stop).

        Costs O(depth) a leaf that has rows, wherever the window lies. Leaves come in the tree's order.
        """
        before, after = self._plateau(start), self._plateau(stop)
        rules_before, rules_after = self._rules_in(before), self._rules_in(after)
        leaves, children = self.leaves, self.joins
        found: list[tuple[int, int, int]] = []
        waiting = [(self._root, start, stop)] if stop > start else []
        while waiting:
            node, first, last = waiting.pop()
            if node < leaves:
                found.append((node, first, last))
                continue
            node -= leaves
            # `due_left` twice, written out: this loop is most of what a batch costs.
            began, left_began, offset, slope = rules_before[node] or self._unpack(before, node)
            left_first = (offset + slope * first) >> FRACTION_BITS
            if left_first < left_began:
                left_first = left_began
            elif left_first > (most := left_began + first - began):
                left_first = most
            if before != after:
                began, left_began, offset, slope = rules_after[node] or self._unpack(after, node)
            left_last = (offset + slope * last) >> FRACTION_BITS
            if left_last < left_began:
                left_last = left_began
            elif left_last > (most := left_began + last - began):
                left_last = most
            left, right = children[node]
            if last - first > left_last - left_first:
                waiting.append((right, first - left_first, last - left_last))
            if left_last > left_first:
                waiting.append((left, left_first, left_last))
        return found

    def most_in_window(self, group: Hashable, plateau: int, rows: int) -> int:
        """Return a bound on the rows of a group in any window of ``rows`` rows inside a plateau.

        Below the root a side may also catch up by one row after the weights have changed.
        """
        most = rows
        for depth, (node, goes_left) in enumerate(self._path(self._tops[group])):
            side = most_of_side(self._rules[node - self.leaves].at(plateau), most, goes_left)
            if side == 0:
                return 0
            most = min(most, side + (1 if depth and plateau else 0))
        return most

    def _arrived(self, node: int, rows: int) -> int:
        plateau = self._plateau(rows)
        for inner, goes_left in self._path(node):
            left = due_left(self._rules[inner - self.leaves].at(plateau), rows)
            rows = left if goes_left else rows - left
        return rows

    def _path(self, node: int) -> list[tuple[int, bool]]:
        """Return the inner nodes from the root to a node's parent, and whether the way goes left at each."""
        path: list[tuple[int, bool]] = []
        while (parent := self._parents[node]) >= 0:
            path.append((parent, self.joins[parent - self.leaves][0] == node))
            node = parent
        return path[::-1]

    def _rules_in(self, plateau: int) -> list[Rule | None]:
        """Return the rules of a plateau as far as they have been unpacked."""
        rules = self._unpacked.get(plateau)
        if rules is None:
            while len(self._unpacked) >= _UNPACKED_PLATEAUS:
                del self._unpacked[next(iter(self._unpacked))]
            rules = self._unpacked[plateau] = [None] * len(self.joins)
        return rules

    def _unpack(self, plateau: int, inner: int) -> Rule:
        rule = self._rules[inner].at(plateau)
        self._rules_in(plateau)[inner] = rule
        return rule

    def _plateau(self, rows: int) -> int:
        if not 0 <= rows <= self.total_rows:
            raise ValueError(f"{rows} rows asked of a plan of {self.total_rows}")
        # At a boundary both plateaus give the same counts; the last one has no successor.
        return min(bisect.bisect_right(self.starts, rows), len(self.starts) - 1) - 1


def _tops(children: Sequence[tuple[int, int]], groups: Sequence[Hashable]) -> dict[Hashable, int]:
    """Return the node that has all leaves of a group below it, for every group."""
    labels: list[Hashable] = list(groups)
    tops: dict[Hashable, int] = dict(zip(groups, range(len(groups)), strict=True))
    mixed: list[bool] = [False] * len(groups)
    for inner, (left, right) in enumerate(children, len(groups)):
        alike = not mixed[left] and not mixed[right] and labels[left] == labels[right]
        labels.append(labels[left])
        mixed.append(not alike)
        if alike:
            tops[labels[left]] = inner
    return tops


def _judged_shares(plateaus: Sequence[Plateau], groups: Sequence[Hashable]) -> NDArray[np.float64]:
    """Return the leaves' shares in some plateaus, evenly apart: [plateaus, leaves]."""
    drawn = [plateau for plateau in plateaus if plateau.rows] or list(plateaus[:1])
    weights = LeafWeights(groups)
    shares: list[NDArray[np.float64]] = []
    for number in judged_plateaus(len(drawn), len(groups)):
        weights.enter(drawn[number])
        shares.append(weights.shares())
    return np.unique(np.stack(shares), axis=0)
