"""MLM and TLM on rows that training never reads, between steps: what it costs is time, and nothing else is changed by it.

The rows are cut into micro-batches of the run's size, which are dealt to the ranks in turn; the cut does not depend on the
number of ranks, so the sums do not either (up to the order of float64 additions). A rank that comes out of micro-batches goes
through empty ones: ZeRO 3 needs the same calls of the model everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from xlm.batching.packed_batch import PackedBatch
from xlm.batching.packed_rows import PieceIds
from xlm.batching.row_builder import RowBuilder
from xlm.config.phases import Objective, ObjectiveShare
from xlm.config.recipe import Recipe
from xlm.config.training import ValidationSection
from xlm.mixing.held_out_rows import HeldOutRows
from xlm.shards.reader import ShardSet
from xlm.training.distributed import Process
from xlm.training.engine import TrainingEngine
from xlm.training.statistics import LossStatistics, WindowMeans
from xlm.training.step_context import NOTHING, StepContext

PREFIX = "validation"


class ValidationBatches:
    """One rank's micro-batches of the held-out rows, built anew each time, the same each time."""

    def __init__(
        self, rows: HeldOutRows, shards: ShardSet, pieces: PieceIds, seed: int, *, process: Process, micro_batch_tokens: int
    ) -> None:
        """``seed`` is of the masks."""
        self._plan = rows
        self._rows = rows.rows()
        self._builder = RowBuilder(rows, shards, pieces, seed)
        self._most = max(1, micro_batch_tokens // rows.sequence_length)
        self._process = process

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of the run, in the order of their ids."""
        return self._plan.languages

    @property
    def objectives(self) -> Mapping[Objective, ObjectiveShare]:
        """What the rows are read as."""
        return self._plan.recipe.phases[0].objectives

    def __len__(self) -> int:
        """Return the number of rows, over all ranks."""
        return len(self._rows)

    def __iter__(self) -> Iterator[PackedBatch]:
        """Yield as many micro-batches on every rank."""
        world_size, rank = self._process.world_size, self._process.rank
        turns = -(-len(self) // (self._most * world_size))
        for first in ((turn * world_size + rank) * self._most for turn in range(turns)):
            mine = self._rows.take(np.arange(min(first, len(self)), min(first + self._most, len(self))))
            yield self._builder.build(mine, [len(mine)])[0]


class Validation:
    """Measures an engine's model on the same batches again and again."""

    def __init__(self, engine: TrainingEngine, batches: ValidationBatches, process: Process) -> None:
        self._engine, self._batches, self._process = engine, batches, process
        self._context = StepContext((NOTHING,) * process.world_size, batches.objectives, 0, process.rank)
        self._statistics = LossStatistics((PREFIX,), batches.languages, engine.device)

    @classmethod
    def of(
        cls, recipe: Recipe, section: ValidationSection, shards: ShardSet, pieces: PieceIds, engine: TrainingEngine, process: Process
    ) -> Validation:
        """Choose the rows of a recipe; raises UserError where there are none."""
        languages = engine.objective.statistics.languages
        rows = HeldOutRows(recipe, section, shards.index, languages)
        if process.is_main:
            print(f"pretraining: {rows.summary()}")
        tokens = recipe.training.micro_batch_tokens
        return cls(engine, ValidationBatches(rows, shards, pieces, section.seed, process=process, micro_batch_tokens=tokens), process)

    def measure(self) -> dict[str, float]:
        """Return the metrics on rank 0, nothing on others; all ranks must call it at the same steps."""
        with self._counting():
            for batch in self._batches:
                self._engine.evaluate(batch.to(self._engine.device), self._context)
        self._statistics.commit_step(True)
        self._statistics.reduce()
        means = self._statistics.take_window()
        return named_validation(means) if self._process.is_main else {}

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Have the objective's losses counted here, apart from those of training."""
        objective = self._engine.objective
        of_training, objective.statistics = objective.statistics, self._statistics
        try:
            yield
        finally:
            objective.statistics = of_training


def named_validation(means: WindowMeans) -> dict[str, float]:
    """Return metrics by name: ``validation/loss`` over all predictions, then ``validation/mlm``, ``validation/mlm/de``.

    Accuracies stand beside them as ``validation/accuracy/mlm`` and ``validation/accuracy/mlm/de``.
    """
    predictions = sum(means.counts.values())
    total = sum(loss * means.counts[key] for key, loss in means.languages.items())
    named = {f"{PREFIX}/loss": total / predictions} if predictions else {}
    named |= {f"{PREFIX}/{measure}": loss for measure, loss in means.objectives.items()}
    named |= {f"{PREFIX}/accuracy/{measure}": value for measure, value in means.accuracies.items()}
    named |= {f"{PREFIX}/{measure}/{language}": loss for (measure, language), loss in means.languages.items()}
    named |= {f"{PREFIX}/accuracy/{measure}/{language}": value for (measure, language), value in means.language_accuracies.items()}
    return named
