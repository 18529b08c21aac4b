"""How far from its exact share a count tree may put a leaf while the weights of a plateau last.

The formula is in `tree_shape.py`. Here it is worked out from the root down for the tree that was made, over
all plateaus at once as far as they fit: with E a node's largest error and s a side's share of its node,
the side's is E * s, and half a row more where both sides are drawn from.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_BLOCK = 64  # plateaus worked out together


class TreeBound:
    """The largest error of any leaf in any plateau, gathered while a tree is made."""

    def __init__(self, leaves: int, children: Sequence[tuple[int, int]]) -> None:
        self._leaves = leaves
        nodes = leaves + len(children)
        self._children, self._sides = children, np.array(children, dtype=np.int64).reshape(-1, 2)
        self._shares, self._rounding = np.zeros(nodes), np.zeros(nodes)  # of the parent; half a row or nothing
        self._blocks: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
        self._levels = _levels(leaves, children)
        self._worst = 0.0

    def change(self, node: int, left: int, right: int) -> None:
        """Take note of what the sides of an inner node weigh from now on."""
        shares, rounding = self._shares, self._rounding
        one, other = self._children[node - self._leaves]
        if left and right:
            shares[one], shares[other] = left / (left + right), right / (left + right)
            rounding[one] = rounding[other] = 0.5
        else:
            shares[one], shares[other] = float(left > 0), float(right > 0)
            rounding[one] = rounding[other] = 0.0

    def take(self) -> None:
        """Take the present weights for a plateau."""
        self._blocks.append((self._shares.copy(), self._rounding.copy()))
        if len(self._blocks) == _BLOCK:
            self._work_out()

    def rows(self) -> float:
        """Return the largest error of a leaf over all plateaus taken, in rows."""
        self._work_out()
        return self._worst

    def _work_out(self) -> None:
        if not self._blocks:
            return
        shares, rounding = (np.stack(arrays, axis=1) for arrays in zip(*self._blocks, strict=True))  # [nodes, plateaus]
        errors = np.zeros_like(shares)
        for inner in self._levels:
            for side in (0, 1):
                nodes = self._sides[inner - self._leaves, side]
                errors[nodes] = shares[nodes] * errors[inner] + rounding[nodes]
        self._worst = max(self._worst, float(errors[: self._leaves].max()))
        self._blocks.clear()


def _levels(leaves: int, children: Sequence[tuple[int, int]]) -> list[NDArray[np.int64]]:
    """Return the inner nodes level by level, the root first."""
    levels: list[NDArray[np.int64]] = []
    present = [leaves + len(children) - 1] if children else []
    while present:
        levels.append(np.array(present, dtype=np.int64))
        present = [side for node in present for side in children[node - leaves] if side >= leaves]
    return levels
