"""Where the k-th row that a corpus ever gives lies: in which epoch, at which place of it.

Epoch e takes variant e mod V of the row plan (design: whatever differs between epochs is one of V
declared variants), and variants may differ in their number of rows, so V epochs make one cycle.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class EpochSpan:
    """Places ``first`` to ``stop`` of one epoch, which has ``rows`` rows of ``variant``."""

    epoch: int
    variant: int
    rows: int
    first: int
    stop: int


class RowCycle:
    """The endless sequence of epochs over one row plan; ``rows_per_variant`` must hold a row at least."""

    def __init__(self, rows_per_variant: Sequence[int]) -> None:
        if not rows_per_variant or min(rows_per_variant) < 0 or sum(rows_per_variant) == 0:
            raise ValueError("a row plan without rows cannot be cycled through")
        self._rows = tuple(rows_per_variant)
        self._starts = [0, *accumulate(self._rows)]

    def spans(self, first: int, stop: int) -> Iterator[EpochSpan]:
        """Yield the parts of epochs that cumulative rows ``first`` to ``stop`` lie in, in order, none empty."""
        variants, cycle_rows = len(self._rows), self._starts[-1]
        while first < stop:
            cycle, within = divmod(first, cycle_rows)
            variant = bisect_right(self._starts, within) - 1  # the last of equal starts: an empty variant is passed over
            place = within - self._starts[variant]
            taken = min(stop - first, self._rows[variant] - place)
            yield EpochSpan(cycle * variants + variant, variant, self._rows[variant], place, place + taken)
            first += taken

    def epochs(self, rows: int) -> float:
        """Return how many epochs a number of rows makes, a part of one included."""
        return len(self._rows) * rows / self._starts[-1]
