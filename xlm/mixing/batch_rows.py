"""The rows of a global batch, as columns: which corpus, which epoch, which row.

Columns and not objects, because a batch of a large run has tens of thousands of rows and every rank looks
at all of them to find its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BatchRows:
    """Rows [R] of one step; a whole global batch is in order of leaf, then row.

    Rows of one corpus that lie near each other on disk are then near each other here, so that ranks which
    take consecutive rows read from few files.
    """

    step: int
    phase: int  # number of the phase
    sequence_length: int
    mask_rate: float
    number: Column  # [R], index within the global batch
    leaf: Column  # [R], index into `DataPlan.leaves`
    epoch: Column  # [R], from 0
    variant: Column  # [R], of the row plan: epoch mod the number of variants
    row: Column  # [R], number of the row in its variant's plan, counted over all blocks

    def __len__(self) -> int:
        return len(self.leaf)

    def take(self, places: Column) -> BatchRows:
        """Return the rows at these places, in this order."""
        return replace(
            self,
            number=self.number[places],
            leaf=self.leaf[places],
            epoch=self.epoch[places],
            variant=self.variant[places],
            row=self.row[places],
        )
