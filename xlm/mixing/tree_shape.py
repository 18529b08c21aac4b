"""The shape of a count tree: which leaves to join, so that rounding moves no leaf further than it must.

A node rounds what it passes on by at most half a row, and an error that reaches a node is handed down in
proportion to its sides. A leaf of weight w is therefore off by at most

    (1 + w * sum of 1 / w_a) / 2,     a: its ancestors, the root left out (no error reaches the root)

where only ancestors count that have two sides of weight. To keep this below T / 2 for every leaf, give each
leaf a budget of (T - 1) / w, let a node of weight w_a charge 1 / w_a to everything below it, and give it the
smaller budget of its two sides less that charge. A tree of bound T / 2 is one whose root is left with 0 or
more. Joining the two largest budgets until two nodes are left is to this budget what Huffman's code (1952) is
to weight, and the smallest T for which it works out is found by halving. Up to a few dozen leaves the order of
joining matters, so that budgets are also blurred a little, many times over, and the best tree is kept.

Bounds: 1.0015 or less on power laws, equal weights and one among many equal, where joining by weight has 1.01
to 1.11; for a few dozen weights over six orders of magnitude 1.06 in the middle and 1.21 at worst (1.18 and
1.47 by weight).
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from xlm.seeding import keyed_generator

# A shape is judged at plateaus evenly apart, as many as make so many shares, and at 16 to 300 of them: all of
# them where weights are redrawn at will, enough of them where they move slowly.
_JUDGED_SHARES, _FEWEST_JUDGED, _MOST_JUDGED = 60_000, 16, 300
_HALVINGS = 10
# Joins that may be spent on blurred budgets, and how many blurred trees there are at most.
_BLURRED_JOINS, _MOST_BLURRED, _BLUR = 4000, 150, 0.2
_STEP = 0.004  # by how much, in T, a blurred tree must be better

Joins = list[tuple[int, int]]  # of nodes; leaves are 0 to n - 1, and the k-th join makes node n + k


def judged_plateaus(plateaus: int, leaves: int) -> list[int]:
    """Return the numbers of the plateaus at which a shape is judged, the first and the last among them."""
    judged = min(plateaus, _MOST_JUDGED, max(_FEWEST_JUDGED, _JUDGED_SHARES // leaves))
    return [number * (plateaus - 1) // max(1, judged - 1) for number in range(judged)]


def best_joins(shares: NDArray[np.float64], groups: Sequence[Hashable]) -> Joins:
    """Return the joins of leaves into one root, the leaves of a group into one node first.

    ``shares`` is [plateaus, leaves], each row the leaves' shares of all rows in one plateau. Every operation
    on it is one that IEEE 754 rounds correctly, element by element, so that all machines find the same tree.
    """
    weights = list(np.ascontiguousarray(shares.T))
    leaves = len(weights)
    low, high = 1.0, 2.0
    joins = _join(weights, groups, high)
    while joins is None:
        low, high = high, 2 * high
        joins = _join(weights, groups, high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        tried = _join(weights, groups, middle)
        if tried is None:
            low = middle
        else:
            joins, high = tried, middle
    for blurred in range(min(_MOST_BLURRED, _BLURRED_JOINS // leaves)):
        if high <= 2.0:
            break  # within a row already
        words = keyed_generator("tree shape", blurred).bit_generator.random_raw(2 * leaves)
        blur = (1.0 + _BLUR * (words >> np.uint64(11)).astype(np.float64) / 2.0**53).tolist()
        while high - _STEP > 1.0 and (tried := _join(weights, groups, high - _STEP, blur)) is not None:
            joins, high = tried, high - _STEP
    return joins


def _join(
    leaves: Sequence[NDArray[np.float64]], groups: Sequence[Hashable], twice_bound: float, blur: list[float] | None = None
) -> Joins | None:
    """Return joins by largest budget, or None where a leaf would be off by more than ``twice_bound`` / 2 rows."""
    weights = list(leaves)
    budgets = [np.divide(twice_bound - 1.0, weight, out=np.full_like(weight, np.inf), where=weight > 0) for weight in weights]
    joins: Joins = []
    members: dict[Hashable, list[int]] = {}
    for leaf, label in enumerate(groups):
        members.setdefault(label, []).append(leaf)

    def key(node: int) -> tuple[float, int]:
        smallest = float(budgets[node].min())
        return (-smallest * blur[node] if blur else -smallest), node

    def joined(nodes: Sequence[int], last: int) -> list[int] | None:
        waiting = [key(node) for node in nodes]
        heapq.heapify(waiting)
        while len(waiting) > last:
            _, left = heapq.heappop(waiting)
            _, right = heapq.heappop(waiting)
            weight = weights[left] + weights[right]
            charge = np.divide(1.0, weight, out=np.zeros_like(weight), where=(weights[left] > 0) & (weights[right] > 0))
            budget = np.minimum(budgets[left], budgets[right]) - charge
            if budget.min() < 0:
                return None
            joins.append((left, right))
            weights.append(weight)
            budgets.append(budget)
            heapq.heappush(waiting, key(len(weights) - 1))
        return [node for _, node in sorted(waiting)]

    tops: list[int] = []
    for of_group in members.values():
        # The last join of a lone group makes the root, which is not charged for.
        left_over = joined(of_group, 2 if len(members) == 1 else 1)
        if left_over is None:
            return None
        tops += left_over
    last_two = joined(tops, 2)
    if last_two is None:
        return None
    if len(last_two) == 2:
        joins.append((last_two[0], last_two[1]))
    return joins
