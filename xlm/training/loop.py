"""The step loop: from the data plan's batches to saved weights, in a way that survives being killed.

Everything that a step needs is a function of the step (data, masks, dropout, learning rate) or in the last
checkpoint (weights, optimizer, open sums), so the loop holds no state of its own. What a step is stands in
`step_runner.py`, what is shown of it in `training_log.py`.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from xlm.config.recipe import Recipe
from xlm.errors import UserError, refused_by_system
from xlm.mixing.seen import Seen
from xlm.runs.progress import Progress
from xlm.training.checkpoint import flush_to_disk, load_checkpoint
from xlm.training.distributed import Process, gather_numbers, raise_everywhere, tell_all
from xlm.training.engine import TrainingEngine
from xlm.training.profiling import StepProfiler
from xlm.training.saving import Saver
from xlm.training.skipped import SKIPPED, SkippedSteps
from xlm.training.step_runner import BatchSource, Fetched, StepDone, StepRunner
from xlm.training.training_log import METRICS, TrainingLog
from xlm.training.utilisation import Utilisation
from xlm.training.validation import Validation
from xlm.training.weights import ModelDescription


@dataclass(frozen=True)
class LoopResult:
    """How a run of the loop ended; ``seen`` and ``last`` are rank 0's."""

    steps: int
    finished: bool
    skipped_steps: int
    seen: Seen
    last: dict[str, Any] | None  # the last line of metrics.jsonl
    stopped_by: int = 0  # the signal that asked to stop before the last step, on whichever rank


class TrainingLoop:
    """Trains to the recipe's last step, or to the first step boundary after a rank is asked to stop."""

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
        log: TrainingLog | None,
        unlike_plan: Callable[[int, Seen], str | None] | None = None,
        stop_asked: Callable[[], int] | None = None,
        validation: Validation | None = None,
        utilisation: Utilisation | None = None,
        profiler: StepProfiler | None = None,
        show_batch: Callable[[int], str] | None = None,
    ) -> None:
        """``phase_at`` gives the index of a step's phase; ``log`` is rank 0's.

        ``unlike_plan`` makes of what has been seen after so many steps a sentence where it is not what had to be seen;
        rank 0 asks it. ``stop_asked`` gives the signal that asks this rank to stop, 0 where none does (`StopRequests`).
        ``show_batch`` gives the command that prints the batch of a step, for people who look after one that was skipped.
        """
        self._engine, self._batches, self._recipe = engine, batches, recipe
        self._process, self._description = process, description
        self._log, self._unlike_plan = log, unlike_plan
        self._steps = StepRunner(engine, recipe, phase_at, process)
        self._statistics = engine.objective.statistics
        self._stop_asked = stop_asked or (lambda: 0)
        self._folder = folder
        self._unwritten: Exception | None = None  # what kept rank 0 from writing its records
        self._saver = Saver(engine, folder, process, recipe.training.checkpoint)
        self._validation, self._utilisation, self._profiler = validation, utilisation, profiler
        self._measured: Mapping[str, float] | None = None  # by validation, after the last step
        phases = [phase.name for phase in recipe.phases]
        self._skipped = SkippedSteps(recipe.training.non_finite, phases, process, folder, show_batch)
        self._saved_step = 0

    def run(self, checkpoint: Path | None, started: float | None = None) -> LoopResult:
        """Go on from ``checkpoint`` (from the start when None) and return how it ended.

        ``started`` is the `time.monotonic` from which this process's share of the wall time counts.
        """
        start = self._resume(checkpoint, time.monotonic() if started is None else started)
        total = self._recipe.total_steps
        with self._progress(total - start) as progress, closing(self._batches.iterate(start, total)) as batches:
            for step in range(start, total):
                if self._profiler is not None:
                    self._profiler.before(step)
                fetched = self._steps.fetch(step, batches) if self._unwritten is None else Fetched(problem=self._unwritten)
                agreed = self._steps.agree(step, fetched, stop_asked=self._stop_asked(), saving=self._saver.status)
                self._saver.advance(agreed.saving)
                if agreed.stop_asked:
                    self._end_profile(step, progress, last=True)
                    self._save(step)
                    return self._result(step, agreed.stop_asked)
                taken = self._steps.train(step, fetched.micro_batches, agreed.context)
                if self._utilisation is not None:
                    self._utilisation.add(fetched.micro_batches)
                self._after_step(step + 1, taken, progress)
        return self._result(total)

    def _resume(self, checkpoint: Path | None, started: float) -> int:
        start, skipped = 0, None
        if checkpoint is not None:
            state = load_checkpoint(self._engine, checkpoint)
            start = int(state["step"])
            self._statistics.load(state["statistics"])
            skipped = state["skipped"]
        self._skipped.resume(start, skipped)
        self._saved_step = start
        if self._log is not None:
            self._log.resume(start, self._statistics.seen().all_tokens, started)
            if self._log.last is None and start >= self._recipe.training.log_every_steps:
                print(f"warning: {METRICS} has nothing of the {start:,} steps so far; the curve begins after them.", file=sys.stderr)
        return start

    def _after_step(self, done: int, taken: StepDone, progress: Progress | _Silent) -> None:
        training, last = self._recipe.training, done == self._recipe.total_steps
        with self._refusals_wait():
            line = self._skipped.after(done - 1, taken)
            if line is not None:
                progress.say(line)
        self._measured = self._validate(done)
        self._end_profile(done, progress, last=last)
        if last or self._measured is not None or done % training.log_every_steps == 0:
            with self._refusals_wait():
                for line in self._show(done, taken):
                    progress.say(line)
        progress.advance()
        if last or done % training.checkpoint.every_steps == 0:
            self._save(done)

    def _validate(self, done: int) -> Mapping[str, float] | None:
        """Return what validation measures at this step, on rank 0 (nothing on others), or None where it is not its turn."""
        section = self._recipe.training.validation
        if self._validation is None or section is None or (done % section.every_steps and done < self._recipe.total_steps):
            return None
        began = time.monotonic()
        measured = self._validation.measure()
        self._leave_out(began)
        return measured

    def _end_profile(self, done: int, progress: Progress | _Silent, *, last: bool) -> None:
        if self._profiler is None:
            return
        began = time.monotonic()
        with self._refusals_wait():
            line = self._profiler.after(done, last=last)
            if line is not None:
                progress.say(line)
                self._leave_out(began)

    def _show(self, done: int, taken: StepDone) -> list[str]:
        self._statistics.reduce()
        work = None if self._utilisation is None else self._utilisation.take()
        if self._log is None:
            return []
        skipped = {"skipped_steps": self._skipped.not_finite, "scale_too_high": self._skipped.scale_too_high}
        return self._log.show(done, taken, self._statistics, **skipped, work=work, measured=self._measured)

    def _save(self, done: int) -> None:
        if done == self._saved_step:
            return  # asked to stop right after saving; a good checkpoint is never written over
        began = time.monotonic()
        if self._process.is_main:
            with self._refusals_wait():
                self._flush_records()
        self._raise_unwritten()
        self._reduce_and_compare(done)
        state = {"step": done, "statistics": self._statistics.state(), "skipped": self._skipped.state()}
        loss = (self._measured or {}).get("validation/loss", math.nan)
        if math.isfinite(loss):
            state["validation_loss"] = loss  # what keep_best compares
        description = replace(self._description, step=done)
        self._saver.save(description, state)
        self._saved_step = done
        self._leave_out(began)

    def _flush_records(self) -> None:
        """Bring to the disk what a checkpoint goes on from: after a power cut it must not stand without its records."""
        for path in (self._folder / METRICS, self._folder / SKIPPED):
            if path.exists():
                flush_to_disk(path)

    @contextmanager
    def _refusals_wait(self) -> Iterator[None]:
        """Keep what a full disk or the like refuses rank 0's records until all ranks can hear of it."""
        try:
            yield
        except OSError as error:
            sentence = refused_by_system(error.errno, error.filename or self._folder)
            self._unwritten = error if sentence is None else UserError(sentence)

    def _leave_out(self, began: float) -> None:
        """Have the log not count the time since then as training."""
        if self._log is not None:
            self._log.leave_out(time.monotonic() - began)

    def _result(self, done: int, stopped_by: int = 0) -> LoopResult:
        self._saver.wait()
        self._raise_unwritten()
        self._reduce_and_compare(done)
        finished = done >= self._recipe.total_steps
        last = None if self._log is None else self._log.last
        return LoopResult(done, finished, self._skipped.not_finite, self._statistics.seen(), last, stopped_by)

    def _raise_unwritten(self) -> None:
        if gather_numbers([int(self._unwritten is not None)], self._engine.device)[0][0]:
            raise_everywhere(self._unwritten, 0)

    def _reduce_and_compare(self, done: int) -> None:
        """Bring the sums to rank 0; raise on every rank where what was seen is not the plan's, so that no checkpoint hides it."""
        self._statistics.reduce()
        problem = self._unlike_plan(done, self._statistics.seen()) if self._process.is_main and self._unlike_plan else None
        problem = tell_all(problem)
        if problem is not None:
            raise RuntimeError(problem)

    def _progress(self, steps: int) -> Progress | _Silent:
        return Progress("pretraining", total=steps, unit="steps") if self._process.is_main else _Silent()


class _Silent:
    """The progress of the ranks that do not speak."""

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def advance(self, amount: int = 1, note: str = "") -> None:
        """Show nothing."""

    def say(self, line: str) -> None:
        """Show nothing."""
