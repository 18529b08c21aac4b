"""When data run out: the step from which a corpus is seen again."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from xlm.mixing.data_plan import DataPlan

# Epochs are floats: one is full up to an error far below a row of any corpus, and a count up to one of a thousandth.
_EPOCH = 1 + 1e-12
_ROW_ERROR = 1e-3


def first_repeats(plan: DataPlan) -> dict[int, int]:
    """Return by leaf the first step that draws beyond one epoch of it, for the leaves that come to that.

    Inside a phase the epochs of a leaf are its rows times a constant, so that one count, O(depth), says them.
    """
    steps = [0, *accumulate(phase.steps for phase in plan.recipe.phases)]
    epochs = [plan.epochs_at(step) for step in steps]
    counts = [plan.tree.counts(plan.first_row(step)) for step in steps]
    found: dict[int, int] = {}
    for number in range(len(plan.recipe.phases)):
        crossing = np.flatnonzero((epochs[number] <= _EPOCH) & (epochs[number + 1] > _EPOCH))
        for leaf in crossing.tolist():
            allowed = _rows_of_an_epoch(epochs, counts, number, leaf)
            done = bisect_left(
                range(steps[number + 1] - steps[number] + 1),
                True,
                key=lambda step: plan.tree.count(leaf, plan.first_row(steps[number] + step)) > allowed,
            )
            found[leaf] = steps[number] + done - 1
    return found


def _rows_of_an_epoch(epochs: Sequence[NDArray[np.float64]], counts: Sequence[NDArray[np.int64]], phase: int, leaf: int) -> float:
    """Return the count of a leaf at which the phase completes its first epoch."""
    a_row = (epochs[phase + 1][leaf] - epochs[phase][leaf]) / (counts[phase + 1][leaf] - counts[phase][leaf])
    return float(counts[phase][leaf] + (1 - epochs[phase][leaf]) / a_row + _ROW_ERROR)
