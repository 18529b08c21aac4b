"""What the trainer asks: this rank's micro-batches of any global batch.

All that there is to save is the number of the next step: the loader of a resumed run is asked for it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from xlm.batching.assign import Assignment
from xlm.batching.packed_batch import PackedBatch
from xlm.batching.packed_rows import PieceIds
from xlm.batching.prefetch import prefetched
from xlm.batching.row_builder import RowBuilder
from xlm.batching.workers import built_by_workers
from xlm.config.training import LoaderSection
from xlm.mixing.data_plan import DataPlan
from xlm.shards.reader import ShardSet


class BatchLoader:
    """Builds the batches of one rank; the same global batch whatever the ranks, micro-batches and workers.

    A pickled loader is what it was made from, without its open files.
    """

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
        loader: LoaderSection | None = None,
        with_provenance: bool = False,
    ) -> None:
        """Raise UserError where the contrastive rows of a batch do not fit into one micro-step."""
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} of {world_size} ranks")
        self._made_from = (plan, shards, vocabulary, seed)
        self._options = {
            "rank": rank,
            "world_size": world_size,
            "micro_batch_tokens": micro_batch_tokens,
            "loader": loader,
            "with_provenance": with_provenance,
        }
        self._plan = plan
        self._rank = rank
        self._ahead = loader or LoaderSection()
        self._with_provenance = with_provenance
        self._builder = RowBuilder(plan, shards, vocabulary, seed)
        self._assignment = Assignment(plan, world_size=world_size, micro_batch_tokens=micro_batch_tokens)
        self._next_step = 0

    @property
    def micro_steps(self) -> int:
        """Micro-batches of the run's largest step."""
        return self._assignment.micro_steps

    def batch(self, step: int) -> list[PackedBatch]:
        """Return this rank's part of a global batch: as many micro-batches as on every rank, empty ones where it has no more rows."""
        rows, sizes = self._assignment.rows_of(self._plan.rows(step), self._rank)
        return self._builder.build(rows, sizes, with_provenance=self._with_provenance)

    def iterate(self, start_step: int | None = None, stop_step: int | None = None) -> Generator[tuple[int, list[PackedBatch]], None, None]:
        """Yield (step, batches) built ahead, from the next step to the run's last unless told otherwise.

        Where there is CUDA their tensors are in pinned memory, so that copies to the GPU need not be waited for.
        Raises UserError, or whatever went wrong, at the step that could not be built.
        """
        steps = range(
            self._next_step if start_step is None else start_step,
            self._plan.total_steps if stop_step is None else stop_step,
        )
        pins = torch.cuda.is_available()
        with closing(self._built_ahead(steps)) as built:
            for step, batches in built:
                self._next_step = step + 1
                yield step, [pinned(batch) for batch in batches] if pins else batches

    def state_dict(self) -> dict[str, int]:
        """Return the step after the last one handed over."""
        return {"step": self._next_step}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on at the step of `state_dict`, which may be of another rank, number of ranks or micro-batch."""
        self._next_step = state["step"]

    def _built_ahead(self, steps: range) -> Generator[tuple[int, list[PackedBatch]], None, None]:
        if self._ahead.workers and steps:
            return built_by_workers(self, steps, workers=self._ahead.workers, ahead=self._ahead.steps_ahead)
        return prefetched(((step, self.batch(step)) for step in steps), self._ahead.steps_ahead)

    def __getstate__(self) -> dict[str, Any]:
        return {"made_from": self._made_from, "options": self._options, "next_step": self._next_step}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(*state["made_from"], **state["options"])  # type: ignore[misc]
        self._next_step = state["next_step"]


def pinned(batch: PackedBatch) -> PackedBatch:
    """Copy a batch's tensors into pinned memory."""
    moved: dict[str, Any] = {
        field.name: value.pin_memory() for field in fields(batch) if isinstance(value := getattr(batch, field.name), Tensor)
    }
    return replace(batch, **moved)
