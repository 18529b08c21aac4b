"""One step of training on one rank: its batches are fetched, all ranks agree to go on, gradients are added, weights change."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from xlm.batching.packed_batch import PackedBatch
from xlm.config.recipe import Recipe
from xlm.training.distributed import Process, gather_numbers, raise_everywhere
from xlm.training.engine import StepResult, TrainingEngine
from xlm.training.schedule import learning_rate_at
from xlm.training.step_context import NOTHING, BatchCounts, StepContext

Batches = Generator[tuple[int, Sequence[PackedBatch]], None, None]


class BatchSource(Protocol):
    """What the loop asks of a loader: the micro-batches of this rank, in each step as many as on every rank."""

    def iterate(self, start_step: int, stop_step: int) -> Batches:
        """Yield (step, micro-batches) for steps in ``range(start_step, stop_step)``."""


@dataclass(frozen=True)
class Fetched:
    """A rank's batches of a step with what they hold, or why there are none."""

    micro_batches: Sequence[PackedBatch] = ()
    counts: BatchCounts = NOTHING
    problem: Exception | None = None


@dataclass(frozen=True)
class Agreement:
    """What all ranks know before a step: its batches, whether to take it at all, how far each is with saving."""

    context: StepContext
    stop_asked: int  # the signal that asked any of them to stop, 0: none
    saving: Sequence[int]  # `Saver.status` by rank


@dataclass(frozen=True)
class StepDone:
    """A step that was taken: what the engine made of it, at which learning rate, in which phase.

    ``losses`` are the parts of its loss that this rank's micro-batches have.
    """

    result: StepResult
    learning_rate: float
    phase: int
    losses: Sequence[Tensor] = ()


class StepRunner:
    """Takes the steps of a recipe with an engine; ``phase_at`` gives the index of a step's phase."""

    def __init__(self, engine: TrainingEngine, recipe: Recipe, phase_at: Callable[[int], int], process: Process) -> None:
        self._engine, self._recipe, self._phase_at, self._process = engine, recipe, phase_at, process
        self._statistics = engine.objective.statistics

    def fetch(self, step: int, batches: Batches) -> Fetched:
        """Take this rank's batches of a step; what goes wrong is kept until all ranks can hear of it."""
        try:
            found, micro_batches = next(batches, (None, ()))
            if found != step:
                raise RuntimeError(f"the loader gave step {found} for step {step}")
            return Fetched(micro_batches, BatchCounts.of(micro_batches))
        except Exception as problem:  # noqa: BLE001 - raised on every rank by `agree`
            return Fetched(problem=problem)

    def agree(self, step: int, fetched: Fetched, *, stop_asked: int = 0, saving: int = 0) -> Agreement:
        """Tell all ranks how much this one's batches hold, which signal asks it to stop, and how far its `Saver` is.

        A rank without batches would leave the others waiting for it: what kept it from them is raised on all.
        """
        own = [int(fetched.problem is not None), stop_asked, saving, *fetched.counts.numbers()]
        everyone = gather_numbers(own, self._engine.device)
        failed = [rank for rank, (problem, *_) in enumerate(everyone) if problem]
        if failed:
            raise_everywhere(fetched.problem, failed[0])
        phase = self._phase_at(step)
        context = StepContext(
            by_rank=tuple(BatchCounts(*counts) for _, _, _, *counts in everyone),
            objectives=self._recipe.phases[phase].objectives,
            phase=phase,
            rank=self._process.rank,
        )
        return Agreement(context, max(stop for _, stop, *_ in everyone), [saving for _, _, saving, *_ in everyone])

    def train(self, step: int, micro_batches: Sequence[PackedBatch], context: StepContext) -> StepDone:
        """Add the gradients of this rank's micro-batches and change the weights."""
        losses = []
        for number, batch in enumerate(micro_batches):
            self._engine.set_dropout_key(self._recipe.seed, step, number, self._process.rank)
            loss = self._engine.accumulate(
                batch.to(self._engine.device),
                context,
                with_pairs=number == 0 and context.pairs > 0,
                last=number == len(micro_batches) - 1,
            )
            losses.append(loss)
        rate = learning_rate_at(self._recipe, step, context.phase)
        result = self._engine.step(rate)
        self._statistics.commit_step(result.applied)
        return StepDone(result, rate, context.phase, losses)
