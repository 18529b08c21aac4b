"""Which rank gets which rows of a global batch, and in which micro-step.

The rows of a batch are fixed by the data plan; dealing them only decides who computes them. Every
objective is split evenly, and the ranks that get one row more than others follow on from those of the
objective before: so counts differ by at most one between ranks, of every objective and in all. Inside an
objective a rank takes consecutive rows, which lie near each other on disk. A rank's contrastive rows come
first, all of them in micro-step 0, because the negatives of a pair are all pairs of the batch and must be
there at once.
"""

from __future__ import annotations

import numpy as np

from xlm.errors import UserError
from xlm.mixing.batch_rows import BatchRows, Column
from xlm.mixing.data_plan import DataPlan


class Assignment:
    """How the batches of a plan are dealt to ``world_size`` ranks in micro-batches of ``micro_batch_tokens``."""

    def __init__(self, plan: DataPlan, *, world_size: int, micro_batch_tokens: int) -> None:
        """Fix how many micro-steps the largest step of the run has.

        Raises UserError where the contrastive rows of a batch do not fit into one micro-step over all ranks.
        """
        self.world_size = world_size
        phases = plan.recipe.phases
        self.micro_batch_rows = [max(1, micro_batch_tokens // phase.sequence_length) for phase in phases]
        rows_of_a_rank = [-(-plan.rows_per_step(number) // world_size) for number in range(len(phases))]
        self.micro_steps = max(-(-rows // most) for rows, most in zip(rows_of_a_rank, self.micro_batch_rows, strict=True))
        for number, phase in enumerate(phases):
            group, fit = plan.most_rows_per_step(number, "contrastive"), self.micro_batch_rows[number] * world_size
            if group > fit:
                needed = -(-group // world_size) * phase.sequence_length
                raise UserError(
                    f"phase '{phase.name}' has up to {group} contrastive rows in a step, but only {fit} fit into one micro-step "
                    f"({self.micro_batch_rows[number]} rows of {phase.sequence_length} tokens on each of {world_size} ranks), and they "
                    f"must be there together; raise training.micro_batch_tokens to {needed} (now {micro_batch_tokens}), use more "
                    "ranks, or lower training.tokens_per_step or the contrastive share."
                )
        # The leaves of an objective are neighbours, and so are its rows in a batch.
        objectives = [leaf.objective for leaf in plan.leaves]
        present = sorted(set(objectives), key=lambda objective: (objective != "contrastive", objective))
        self._first_leaves = np.array([objectives.index(objective) for objective in present], dtype=np.int64)
        self._stop_leaves = self._first_leaves + np.array([objectives.count(objective) for objective in present], dtype=np.int64)

    def cuts(self, rows: BatchRows) -> Column:
        """Return where the parts of the ranks begin in a global batch: [objectives, world_size + 1], contrastive first.

        Rank r takes rows ``cuts[o, r]`` to ``cuts[o, r + 1]`` of every objective o.
        """
        firsts = np.searchsorted(rows.leaf, self._first_leaves)
        counts = np.searchsorted(rows.leaf, self._stop_leaves) - firsts
        each, over = np.divmod(counts, self.world_size)
        # The ranks with one row more are a stretch of the ring of ranks that begins where the last one ended.
        begins = (np.cumsum(over) - over) % self.world_size
        ranks = np.arange(self.world_size + 1)
        past_the_end = begins + over - self.world_size
        before = np.clip(ranks - begins[:, None], 0, over[:, None]) + np.clip(past_the_end[:, None], 0, ranks)
        found: Column = firsts[:, None] + each[:, None] * ranks + before
        return found

    def rows_of(self, rows: BatchRows, rank: int) -> tuple[BatchRows, list[int]]:
        """Return a rank's rows of a whole global batch and how many of them each micro-step takes, in turn: [micro-steps].

        A batch has as many micro-steps as the rank with most rows needs, on every rank the same number.
        """
        cuts = self.cuts(rows)[:, rank : rank + 2].tolist()
        mine = np.concatenate([np.arange(first, stop, dtype=np.int64) for first, stop in cuts])
        most = self.micro_batch_rows[rows.phase]
        most_of_a_rank = -(-len(rows) // self.world_size)
        return rows.take(mine), [min(most, max(0, len(mine) - first)) for first in range(0, most_of_a_rank, most)]
