"""How many rows each leaf (a corpus under an objective) has given after n rows, at any n, in O(depth).

Promise 1 needs counts that are a function of n alone, that add up to n, never fall, and stay within a
row of the exact share. A binary tree, balanced by weight, gives all four: of the n rows that reach a
node its left child gets

    floor(X(n) + 1/2),    X(n) = L + (n - N) * l / (l + r)

and its right child the rest. l and r are the weights of the two sides in the plateau that n lies in, N
and L the *exact* shares of the node and of its left side at the start of that plateau. X grows by at
most one per row, so neither side ever falls, and a rounding error is multiplied by l / (l + r), about
one half, on its way down a level: a leaf is off by at most (1 + f (1 + f' (1 + ...))) / 2, f its share
of its parent, f' its parent's share of the next, the root left out. That is 1 for perfect halves and a
little more where a heavy leaf sits deep, so of two ways to join the leaves the one with the smaller
bound is taken. (Measured worst: 1.00 rows on power laws, equal weights and leaves that join.)

Anchoring X at the exact shares, instead of at the counts that were reached, keeps the errors of one
plateau from adding to those of the next. X may then step by less than a row where the weights change;
the count waits, or takes every row, until X has come level again. A side of weight 0 gets nothing.

Two simpler forms are wrong: rounding cumulative weights gives counts that fall, and due times at
k - 1/2 are off by hundreds of rows where many weights are equal.
"""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from xlm.mixing.sampling import in_units

# Weights become integers that sum to this in every plateau: exact shares are then integers over it,
# with the same few digits however many plateaus there are. Rounding to it moves a share by less than
# one row in 10^18.
UNITS = 1 << 60


@dataclass(frozen=True)
class Plateau:
    """A stretch of ``rows`` rows over which the weights (one a leaf; 0 for a leaf that is not drawn) stay as they are."""

    rows: int
    weights: Sequence[Fraction | float | int]


@dataclass(frozen=True, slots=True)
class _Rule:
    """The left count in one plateau: floor((offset + slope * n) / divisor), held between none and all of the new rows."""

    start: int  # rows that had reached the node when the plateau began
    left_start: int  # of them, the left child's
    offset: int
    slope: int
    divisor: int

    def left(self, rows: int) -> int:
        due = (self.offset + self.slope * rows) // self.divisor
        return max(self.left_start, min(self.left_start + rows - self.start, due))


@dataclass(slots=True)
class _Node:
    """A leaf (``leaf`` >= 0) or an inner node; ``units`` is its weight in each plateau."""

    units: list[int]
    leaf: int = -1
    left: _Node | None = None
    right: _Node | None = None
    rules: Sequence[_Rule] = ()


class CountTree:
    """Cumulative row counts of leaves whose weights change from plateau to plateau.

    ``groups`` (one label a leaf) keeps the leaves of a label in one subtree, so that the label's share
    holds within a row in every window of rows, not only each leaf's.
    """

    def __init__(self, plateaus: Sequence[Plateau], groups: Sequence[Hashable] | None = None) -> None:
        if not plateaus or any(plateau.rows < 0 for plateau in plateaus):
            raise ValueError("a count tree needs plateaus of no negative length")
        self.leaves = len(plateaus[0].weights)
        if any(len(plateau.weights) != self.leaves for plateau in plateaus):
            raise ValueError("every plateau needs one weight a leaf; use 0 for leaves that are not drawn")
        self.starts = [0, *accumulate(plateau.rows for plateau in plateaus)]
        self.total_rows = self.starts[-1]
        lengths = [plateau.rows for plateau in plateaus]
        units = [in_units(plateau.weights, UNITS) for plateau in plateaus]
        self._groups = list(groups) if groups is not None else [None] * self.leaves
        trees = [_grow(units, lengths, self._groups, join) for join in (_join_halves, _join_lightest)]
        self._root, tops = min(trees, key=lambda tree: _bound(tree[0]))
        _add_rules(self._root, lengths)
        paths = _paths(self._root)
        self._paths = {node.leaf: path for node, path in paths if node.leaf >= 0}
        by_node = {id(node): path for node, path in paths}
        self._top_paths = {label: by_node[id(top)] for label, top in tops.items()}

    def counts(self, rows: int) -> NDArray[np.int64]:
        """Return the cumulative count of every leaf after ``rows`` rows overall: [leaves] int64, summing to ``rows``."""
        counts = np.zeros(self.leaves, dtype=np.int64)
        for leaf, _, last in self.between(0, rows):
            counts[leaf] = last
        return counts

    def count(self, leaf: int, rows: int) -> int:
        """Return one leaf's cumulative count after ``rows`` rows overall, in O(depth)."""
        plateau = self._plateau(rows)
        for node, goes_left in self._paths[leaf]:
            left = node.rules[plateau].left(rows)
            rows = left if goes_left else rows - left
        return rows

    def between(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """Return (leaf, its count at ``start``, its count at ``stop``) of every leaf that has rows in [start, stop).

        Costs O(depth) a leaf that has rows, wherever the window lies. Leaves come in the tree's order.
        """
        before, after = self._plateau(start), self._plateau(stop)
        found: list[tuple[int, int, int]] = []
        waiting = [(self._root, start, stop)]
        while waiting:
            node, first, last = waiting.pop()
            if first == last:
                continue
            if node.left is None or node.right is None:
                found.append((node.leaf, first, last))
                continue
            left_first, left_last = node.rules[before].left(first), node.rules[after].left(last)
            waiting.append((node.right, first - left_first, last - left_last))
            waiting.append((node.left, left_first, left_last))
        return found

    def group_count(self, group: Hashable, rows: int) -> int:
        """Return the cumulative count of all leaves of a group after ``rows`` rows overall."""
        plateau = self._plateau(rows)
        for node, goes_left in self._top_paths[group]:
            left = node.rules[plateau].left(rows)
            rows = left if goes_left else rows - left
        return rows

    def most_in_window(self, group: Hashable, plateau: int, rows: int) -> int:
        """Return a bound on the rows of a group in any window of ``rows`` rows inside a plateau.

        A floor of a line of slope s grows by at most ceil(rows * s) over ``rows`` steps; below the
        root it may also catch up by one row after the weights have changed.
        """
        most = rows
        for depth, (node, goes_left) in enumerate(self._top_paths[group]):
            child = node.left if goes_left else node.right
            if child is None or node.units[plateau] == 0 or child.units[plateau] == 0:
                return 0
            catching_up = 1 if depth and plateau else 0
            most = min(most, -(-most * child.units[plateau] // node.units[plateau]) + catching_up)
        return most

    @property
    def depth(self) -> int:
        """Levels between the root and its deepest leaf."""
        return max(map(len, self._paths.values()))

    def _plateau(self, rows: int) -> int:
        if not 0 <= rows <= self.total_rows:
            raise ValueError(f"{rows} rows asked of a plan of {self.total_rows}")
        # At a boundary both plateaus give the same counts; the last one has no successor.
        return min(bisect.bisect_right(self.starts, rows), len(self.starts) - 1) - 1


_Path = list[tuple[_Node, bool]]  # from the root: each inner node, and whether the way goes left


def _paths(root: _Node) -> list[tuple[_Node, _Path]]:
    """Return every node with the path to it."""
    found: list[tuple[_Node, _Path]] = [(root, [])]
    for node, path in found:  # grows while it is walked
        if node.left is not None and node.right is not None:
            found += [(node.left, [*path, (node, True)]), (node.right, [*path, (node, False)])]
    return found


_Join = Callable[[Sequence[_Node], Sequence[int]], _Node]


def _grow(
    units: Sequence[Sequence[int]], lengths: Sequence[int], groups: Sequence[Hashable], join: _Join
) -> tuple[_Node, dict[Hashable, _Node]]:
    """Join the leaves of each group, then the groups; return the root and the top node of every group."""
    members: dict[Hashable, list[_Node]] = {}
    for leaf, label in enumerate(groups):
        members.setdefault(label, []).append(_Node([of_plateau[leaf] for of_plateau in units], leaf))
    tops = {label: join(leaves, lengths) for label, leaves in members.items()}
    return join(list(tops.values()), lengths), tops


def _parent(left: _Node, right: _Node) -> _Node:
    return _Node([a + b for a, b in zip(left.units, right.units, strict=True)], left=left, right=right)


def _total(node: _Node, lengths: Sequence[int]) -> int:
    return sum(length * units for length, units in zip(lengths, node.units, strict=True))


def _join_halves(nodes: Sequence[_Node], lengths: Sequence[int]) -> _Node:
    """Split the nodes, heaviest first, where the two sides weigh most nearly the same, and so on down."""
    ordered = sorted(nodes, key=lambda node: _total(node, lengths), reverse=True)  # stable: equal weights keep their order
    sums = [0, *accumulate(_total(node, lengths) for node in ordered)]

    def join(low: int, high: int) -> _Node:
        if high - low == 1:
            return ordered[low]
        twice_middle = sums[low] + sums[high]
        cut = bisect.bisect_left(sums, twice_middle, low + 1, high - 1, key=lambda value: 2 * value)
        if cut > low + 1 and twice_middle - 2 * sums[cut - 1] <= 2 * sums[cut] - twice_middle:
            cut -= 1
        if sums[low] == sums[high]:
            cut = (low + high) // 2  # weightless leaves: only keep the tree shallow
        return _parent(join(low, cut), join(cut, high))

    return join(0, len(ordered))


def _join_lightest(nodes: Sequence[_Node], lengths: Sequence[int]) -> _Node:
    """Join the two lightest nodes until one is left (Huffman 1952), so that the lopsided splits lie near the root."""
    waiting = [(_total(node, lengths), order, node) for order, node in enumerate(nodes)]
    heapq.heapify(waiting)
    for order in range(len(nodes), 2 * len(nodes) - 1):
        light, _, right = heapq.heappop(waiting)
        heavy, _, left = heapq.heappop(waiting)
        heapq.heappush(waiting, (light + heavy, order, _parent(left, right)))
    return waiting[0][2]


def _bound(root: _Node) -> float:
    """Return the largest error of a leaf that the shape of a tree allows within a plateau, in rows."""
    worst = 0.0
    waiting = [(root, [0.0] * len(root.units))]
    while waiting:
        node, errors = waiting.pop()
        worst = max(worst, *errors)
        for child in (node.left, node.right):
            if child is not None:
                shares = [units / whole if whole else 0.0 for units, whole in zip(child.units, node.units, strict=True)]
                waiting.append((child, [0.5 + share * error for share, error in zip(shares, errors, strict=True)]))
    return worst


def _add_rules(root: _Node, lengths: Sequence[int]) -> None:
    """Fill in every inner node's rule of each plateau, from the root down; ``arrived`` is what has reached a node by then."""
    waiting = [(root, [0, *accumulate(lengths)])]
    while waiting:
        node, arrived = waiting.pop()
        if node.left is None or node.right is None:
            continue
        rules: list[_Rule] = []
        left_arrived = [0]
        exact_node = exact_left = 0  # in UNITS of a row
        for plateau, length in enumerate(lengths):
            left, right = node.left.units[plateau], node.right.units[plateau]
            rule = _rule(arrived[plateau], left_arrived[-1], exact_node, exact_left, left, right)
            rules.append(rule)
            left_arrived.append(rule.left(arrived[plateau + 1]))
            exact_node += length * (left + right)
            exact_left += length * left
        node.rules = rules
        waiting.append((node.left, left_arrived))
        waiting.append((node.right, [all_rows - of_left for all_rows, of_left in zip(arrived, left_arrived, strict=True)]))


def _rule(start: int, left_start: int, exact_node: int, exact_left: int, left: int, right: int) -> _Rule:
    """Return the rule of one plateau; exact shares are in UNITS of a row, ``left`` and ``right`` are weights."""
    if left == 0:
        return _Rule(start, left_start, left_start, 0, 1)
    if right == 0:
        return _Rule(start, left_start, left_start - start, 1, 1)
    # floor(X(n) + 1/2) over the common divisor 2 * UNITS * (left + right).
    both = left + right
    offset = 2 * exact_left * both - 2 * exact_node * left + UNITS * both
    slope = 2 * UNITS * left
    divisor = 2 * UNITS * both
    common = math.gcd(offset, slope, divisor)
    return _Rule(start, left_start, offset // common, slope // common, divisor // common)
