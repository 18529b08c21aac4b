"""Where the k-th row that a corpus ever gives lies: in which epoch, at which place of it.

Epoch e takes variant e mod V of the row plan (design: whatever differs between epochs is one of V
declared variants), and variants may differ in their number of rows, so V epochs make one cycle. Tables
over all leaves and not an object for each, because a batch asks about thousands of them at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xlm.mixing.batch_rows import Column


@dataclass(frozen=True, slots=True)
class Places:
    """Places [m] in epochs: place ``place`` of the ``size`` rows that epoch ``epoch`` has, all of ``variant``."""

    epoch: Column
    variant: Column
    place: Column
    size: Column


class RowCycles:
    """The endless sequences of epochs over the row plans of all leaves in one phase.

    ``rows_per_variant`` is [leaves][V]; a leaf whose variants are all empty cannot be asked about.
    """

    def __init__(self, rows_per_variant: Sequence[Sequence[int]]) -> None:
        rows = np.array(rows_per_variant, dtype=np.int64)
        if rows.ndim != 2 or not rows.size or rows.min() < 0:
            raise ValueError("a cycle needs the rows of every leaf in every variant, none negative")
        self._rows = rows
        self._starts = np.concatenate([np.zeros((len(rows), 1), dtype=np.int64), np.cumsum(rows, axis=1)], axis=1)
        self._cycle_rows = self._starts[:, -1].copy()

    def locate(self, leaf: Column, number: Column) -> Places:
        """Return where the ``number``-th row [m] of each ``leaf`` [m] lies, both counted from 0."""
        cycle_rows = self._cycle_rows[leaf]
        cycle = number // cycle_rows
        within = number - cycle * cycle_rows
        variant = np.zeros_like(cycle)
        variants = self._rows.shape[1]
        for following in range(1, variants):
            variant += within >= self._starts[leaf, following]  # of equal starts the last: an empty variant is passed over
        return Places(
            epoch=cycle * variants + variant,
            variant=variant,
            place=within - self._starts[leaf, variant],
            size=self._rows[leaf, variant],
        )

    def epochs(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return how many epochs each leaf's number of rows [leaves] makes, a part of one included; 0 where a leaf has no rows."""
        epochs: NDArray[np.float64] = self._rows.shape[1] * rows / np.maximum(1, self._cycle_rows)
        return epochs
