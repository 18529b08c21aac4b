"""What the trainer asks: this rank's micro-batches of any global batch.

There is no state to save: the loader of a resumed run is asked for the step it stands at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from xlm.batching.assign import Assignment
from xlm.batching.collate import PlacedRows, collate
from xlm.batching.packed_batch import PackedBatch
from xlm.batching.packed_rows import PieceIds
from xlm.batching.prefetch import prefetched
from xlm.batching.row_builder import RowBuilder
from xlm.mixing.data_plan import DataPlan
from xlm.shards.reader import ShardSet

STEPS_AHEAD = 2


class BatchLoader:
    """Builds the batches of one rank; the same global batch whatever the ranks and micro-batches."""

    def __init__(
        self,
        plan: DataPlan,
        shards: ShardSet,
        vocabulary: PieceIds,
        seed: int,
        *,
        rank: int,
        world_size: int,
        micro_batch_tokens: int,
        with_provenance: bool = False,
    ) -> None:
        """Raise UserError where the contrastive rows of a batch do not fit into one micro-step."""
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} of {world_size} ranks")
        self._plan = plan
        self._rank = rank
        self._with_provenance = with_provenance
        self._builder = RowBuilder(shards, vocabulary, plan.languages, seed)
        self._assignment = Assignment(plan, world_size=world_size, micro_batch_tokens=micro_batch_tokens)

    @property
    def micro_steps(self) -> int:
        """Micro-batches of a step, the same for every rank and step of the run."""
        return self._assignment.micro_steps

    def batch(self, step: int) -> list[PackedBatch]:
        """Return this rank's part of a global batch: [micro_steps], empty batches where it has no more rows."""
        refs = self._plan.rows(step)
        # Pairs are numbered over the whole batch, so rows of other ranks count too; their plans say how many.
        first_pairs = list(accumulate((self._builder.pairs_in(ref) for ref in refs), initial=0))
        places = {ref: number for number, ref in enumerate(refs)}

        def micro_batch(numbers: Sequence[int]) -> PackedBatch:
            parts: list[PlacedRows] = []
            for built in self._builder.build([refs[number] for number in numbers], with_provenance=self._with_provenance):
                row_ids = [places[ref] for ref in built.refs]
                pairs_before = np.array([first_pairs[row_id] for row_id in row_ids], dtype=np.int64)
                parts.append(PlacedRows(built.rows, np.array(row_ids, dtype=np.int64), pairs_before, built.provenance))
            return collate(parts)

        return [micro_batch(numbers) for numbers in self._assignment.rows_of(refs, self._rank)]

    def iterate(self, start_step: int, stop_step: int) -> Iterator[tuple[int, list[PackedBatch]]]:
        """Yield (step, batches) from ``start_step`` up to ``stop_step``, built ahead in a background thread."""
        return prefetched(((step, self.batch(step)) for step in range(start_step, stop_step)), STEPS_AHEAD)
