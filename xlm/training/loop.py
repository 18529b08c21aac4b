"""The step loop: from the data plan's batches to saved weights, in a way that survives being killed.

Everything that a step needs is a function of the step (data, masks, dropout, learning rate) or in the last
checkpoint (weights, optimizer, open sums), so the loop holds no state of its own.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from xlm.batching.packed_batch import PackedBatch
from xlm.config.recipe import Recipe
from xlm.mixing.seen import Seen
from xlm.runs.memory import MemorySampler
from xlm.runs.progress import Progress
from xlm.tracking.json_lines import JsonLines
from xlm.tracking.tracker import Tracker
from xlm.training.checkpoint import load_checkpoint, save_checkpoint
from xlm.training.distributed import Process, gather_numbers, raise_everywhere, tell_all
from xlm.training.engine import StepResult, TrainingEngine
from xlm.training.schedule import learning_rate
from xlm.training.statistics import WindowMeans
from xlm.training.step_context import NOTHING, BatchCounts, StepContext
from xlm.training.weights import ModelDescription

METRICS = "metrics.jsonl"


class BatchSource(Protocol):
    """What the loop asks of a loader: the micro-batches of this rank, the same number in every step."""

    def iterate(self, start_step: int, stop_step: int) -> Generator[tuple[int, Sequence[PackedBatch]], None, None]:
        """Yield (step, micro-batches) for steps in ``range(start_step, stop_step)``."""


@dataclass(frozen=True)
class LoopResult:
    """How a run of the loop ended; ``seen`` and ``last`` are rank 0's."""

    steps: int
    finished: bool
    skipped_steps: int
    seen: Seen
    last: dict[str, Any] | None  # the last line of metrics.jsonl


@dataclass(frozen=True)
class _Fetched:
    """A rank's batches of a step with what they hold, or why there are none."""

    micro_batches: Sequence[PackedBatch] = ()
    counts: BatchCounts = NOTHING
    problem: Exception | None = None


class TrainingLoop:
    """Trains to the recipe's last step, or to the first step boundary after SIGTERM."""

    def __init__(
        self,
        engine: TrainingEngine,
        batches: BatchSource,
        recipe: Recipe,
        phase_at: Callable[[int], int],
        *,
        process: Process,
        folder: Path,
        description: ModelDescription,
        tracker: Tracker | None = None,
        memory: MemorySampler | None = None,
        drawn: Callable[[int, Seen], Mapping[str, float]] | None = None,
        unlike_plan: Callable[[int, Seen], str | None] | None = None,
    ) -> None:
        """``phase_at`` gives the index of a step's phase.

        Of what has been seen after so many steps, ``drawn`` makes metrics, and ``unlike_plan`` a sentence where it is not
        what had to be seen; rank 0 asks them.
        """
        self._engine, self._batches, self._recipe, self._phase_at = engine, batches, recipe, phase_at
        self._process, self._folder, self._description = process, folder, description
        self._tracker, self._memory, self._drawn, self._unlike_plan = tracker, memory, drawn, unlike_plan
        self._lines = JsonLines(folder / METRICS)
        self._statistics = engine.objective.statistics
        self._stop_asked = False
        self._skipped_steps = 0
        self._last: dict[str, Any] | None = None
        self._tokens_shown = 0
        self._window_started = self._started = time.monotonic()
        self._wall_before_s = 0.0
        self._saved_step = 0

    def run(self, checkpoint: Path | None, started: float | None = None) -> LoopResult:
        """Go on from ``checkpoint`` (from the start when None) and return how it ended.

        ``started`` is the `time.monotonic` from which this process's share of the wall time counts.
        """
        self._started = time.monotonic() if started is None else started
        start = self._resume(checkpoint)
        total = self._recipe.total_steps
        before = signal.signal(signal.SIGTERM, self._ask_to_stop)
        try:
            with self._progress(total - start) as progress, closing(self._batches.iterate(start, total)) as batches:
                self._window_started = time.monotonic()
                for step in range(start, total):
                    fetched = self._fetch(step, batches)
                    context, stop = self._agree(step, fetched)
                    if stop:
                        self._save(step)
                        return self._result(step)
                    result, rate = self._train_step(step, fetched.micro_batches, context)
                    self._after_step(step + 1, result, rate, progress)
        finally:
            signal.signal(signal.SIGTERM, before)
        return self._result(total)

    def wall_s(self) -> float:
        """Return the seconds spent on this run so far, by all its processes one after the other."""
        return self._wall_before_s + time.monotonic() - self._started

    def _resume(self, checkpoint: Path | None) -> int:
        start = 0
        if checkpoint is not None:
            state = load_checkpoint(self._engine, checkpoint)
            start = int(state["step"])
            self._statistics.load(state["statistics"])
            self._skipped_steps = int(state["skipped_steps"])
        self._saved_step = start
        if self._process.is_main:
            # Time spent on steps that a kill took back was spent all the same.
            records = self._lines.read()
            self._wall_before_s = float(records[-1]["wall_s"]) if records else 0.0
            kept = self._lines.cut_after(start)
            self._last = kept[-1] if kept else None
            self._tokens_shown = self._statistics.seen().all_tokens
            if self._tracker is not None:
                for record in kept:
                    self._track(record)
        return start

    def _fetch(self, step: int, batches: Generator[tuple[int, Sequence[PackedBatch]], None, None]) -> _Fetched:
        """Take this rank's batches of a step; what goes wrong is kept until all ranks can hear of it."""
        try:
            found, micro_batches = next(batches, (None, ()))
            if found != step:
                raise RuntimeError(f"the loader gave step {found} for step {step}")
            return _Fetched(micro_batches, BatchCounts.of(micro_batches))
        except Exception as problem:  # noqa: BLE001 - raised on every rank by `_agree`
            return _Fetched(problem=problem)

    def _agree(self, step: int, fetched: _Fetched) -> tuple[StepContext, bool]:
        """Tell all ranks how much this one's batches hold, and whether it was asked to stop.

        A rank without batches would leave the others waiting for it: what kept it from them is raised on all.
        """
        own = [int(fetched.problem is not None), int(self._stop_asked), *fetched.counts.numbers()]
        everyone = gather_numbers(own, self._engine.device)
        failed = [rank for rank, (problem, *_) in enumerate(everyone) if problem]
        if failed:
            raise_everywhere(fetched.problem, failed[0])
        phase = self._phase_at(step)
        context = StepContext(
            by_rank=tuple(BatchCounts(*counts) for _, _, *counts in everyone),
            objectives=self._recipe.phases[phase].objectives,
            phase=phase,
            rank=self._process.rank,
        )
        return context, any(stop for _, stop, *_ in everyone)

    def _train_step(self, step: int, micro_batches: Sequence[PackedBatch], context: StepContext) -> tuple[StepResult, float]:
        training = self._recipe.training
        for number, batch in enumerate(micro_batches):
            self._engine.set_dropout_key(self._recipe.seed, step, number, self._process.rank)
            self._engine.accumulate(
                batch.to(self._engine.device),
                context,
                with_pairs=number == 0 and context.pairs > 0,
                last=number == len(micro_batches) - 1,
            )
        rate = learning_rate(training.schedule, training.optimizer.learning_rate, step, self._recipe.total_steps)
        result = self._engine.step(rate)
        self._statistics.commit_step(result.applied)
        if not result.applied:
            self._skipped_steps += 1
        return result, rate

    def _after_step(self, done: int, result: StepResult, rate: float, progress: Progress | _Silent) -> None:
        training = self._recipe.training
        note = ""
        if done % training.log_every_steps == 0 or done == self._recipe.total_steps:
            note = self._show(done, result, rate)
        progress.advance(note=note)
        if done % training.checkpoint.every_steps == 0 or done == self._recipe.total_steps:
            self._save(done)

    def _show(self, done: int, result: StepResult, rate: float) -> str:
        self._statistics.reduce()
        if not self._process.is_main:
            return ""
        means = self._statistics.take_window()
        seen = self._statistics.seen()
        tokens = seen.all_tokens
        now = time.monotonic()
        speed = (tokens - self._tokens_shown) / max(now - self._window_started, 1e-9)
        self._tokens_shown, self._window_started = tokens, now
        record: dict[str, Any] = {
            "step": done,
            "phase": self._recipe.phases[self._phase_at(done - 1)].name,
            **_named_means(means),
            "learning_rate": rate,
            "gradient_norm": result.gradient_norm if result.applied else None,
            "skipped_steps": self._skipped_steps,
            "tokens": tokens,
            "tokens_per_second": round(speed, 1),
            "wall_s": round(self.wall_s(), 3),
        }
        if self._drawn is not None:
            record.update(self._drawn(done, seen))
        if self._memory is not None:
            record["peak_memory_bytes"] = self._memory.peak_bytes
        self._lines.append(record)
        self._track(record)
        self._last = record
        loss = "no step applied" if means.loss is None else f"loss {means.loss:.3f}"
        return f"{loss}, {speed:,.0f} tokens/s"

    def _track(self, record: dict[str, Any]) -> None:
        if self._tracker is not None:
            metrics = {name: value for name, value in record.items() if isinstance(value, int | float) and name != "step"}
            self._tracker.log(int(record["step"]), metrics)

    def _save(self, done: int) -> None:
        if done == self._saved_step:
            return  # asked to stop right after saving; a good checkpoint is never written over
        began = time.monotonic()
        self._reduce_and_compare(done)
        state = {"step": done, "statistics": self._statistics.state(), "skipped_steps": self._skipped_steps}
        description = replace(self._description, step=done)
        keep = self._recipe.training.checkpoint.keep_last
        save_checkpoint(self._engine, self._folder, self._process, description, state, keep)
        self._saved_step = done
        self._window_started += time.monotonic() - began  # tokens per second are of training, not of saving

    def _result(self, done: int) -> LoopResult:
        self._reduce_and_compare(done)
        finished = done >= self._recipe.total_steps
        return LoopResult(done, finished, self._skipped_steps, self._statistics.seen(), self._last)

    def _reduce_and_compare(self, done: int) -> None:
        """Bring the sums to rank 0; raise on every rank where what was seen is not the plan's, so that no checkpoint hides it."""
        self._statistics.reduce()
        problem = self._unlike_plan(done, self._statistics.seen()) if self._process.is_main and self._unlike_plan else None
        problem = tell_all(problem)
        if problem is not None:
            raise RuntimeError(problem)

    def _progress(self, steps: int) -> Progress | _Silent:
        return Progress("pretraining", total=steps, unit="step") if self._process.is_main else _Silent()

    def _ask_to_stop(self, number: int, frame: FrameType | None) -> None:
        self._stop_asked = True


class _Silent:
    """The progress of the ranks that do not speak."""

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def advance(self, amount: int = 1, note: str = "") -> None:
        """Show nothing."""


def _named_means(means: WindowMeans) -> dict[str, float | None]:
    named: dict[str, float | None] = {"loss": means.loss}
    named.update({f"loss/{measure}": value for measure, value in means.objectives.items()})
    named.update({f"accuracy/{measure}": value for measure, value in means.accuracies.items()})
    named.update({f"loss/{measure}/{language}": value for (measure, language), value in means.languages.items()})
    return named
