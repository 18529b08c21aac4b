"""Which rank gets which rows of a global batch, and in which micro-step.

The rows of a batch are fixed by the data plan; dealing them only decides who computes them. Contrastive
rows are dealt first, one to each rank in turn, and the other rows after them in the same turn: all counts
differ by at most one between ranks, and all contrastive rows lie in micro-step 0, because the negatives
of a pair are all pairs of the batch and must be there at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from xlm.errors import UserError
from xlm.mixing.data_plan import DataPlan, RowRef


class Assignment:
    """How the batches of a plan are dealt to ``world_size`` ranks in micro-batches of ``micro_batch_tokens``."""

    def __init__(self, plan: DataPlan, *, world_size: int, micro_batch_tokens: int) -> None:
        """Fix the number of micro-steps for the whole run.

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

    def rows_of(self, refs: Sequence[RowRef], rank: int) -> list[list[int]]:
        """Return by micro-step the indices of a rank's rows in ``refs``, the rows of one global batch."""
        contrastive = [number for number, ref in enumerate(refs) if ref.objective == "contrastive"]
        others = [number for number, ref in enumerate(refs) if ref.objective != "contrastive"]
        mine = (contrastive + others)[rank :: self.world_size]
        most = self.micro_batch_rows[refs[0].phase]
        return [mine[first : first + most] for first in range(0, self.micro_steps * most, most)]
