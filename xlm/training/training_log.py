"""What rank 0 tells of training: a record a logged step, in metrics.jsonl, to the tracker, and as a line for people."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from xlm.mixing.seen import Seen
from xlm.runs.memory import MemorySampler
from xlm.tracking.json_lines import JsonLines
from xlm.tracking.tracker import Tracker
from xlm.training.console import console_line, validation_line
from xlm.training.statistics import LossStatistics, WindowMeans
from xlm.training.step_runner import StepDone
from xlm.training.utilisation import Work

METRICS = "metrics.jsonl"
# What a record says of the machine and its clock; all else is the same in every run of a recipe, killed on its way or not.
OF_THE_MACHINE = frozenset({"tokens_per_second", "wall_s", "time", "time_left_s", "mfu", "peak_memory_bytes", "peak_device_memory_bytes"})


class TrainingLog:
    """The curve of a run; only rank 0 has one."""

    def __init__(
        self,
        folder: Path,
        phases: tuple[str, ...],
        total_steps: int,
        *,
        tracker: Tracker | None = None,
        memory: MemorySampler | None = None,
        drawn: Callable[[int, Seen], Mapping[str, float]] | None = None,
    ) -> None:
        """``phases`` are the names; ``drawn`` makes metrics of what has been seen after so many steps."""
        self._lines, self._phases, self._total_steps = JsonLines(folder / METRICS), phases, total_steps
        self._tracker, self._memory, self._drawn = tracker, memory, drawn
        self.last: dict[str, Any] | None = None  # the last line of metrics.jsonl
        self._tokens_shown = 0
        self._window_started = self._started = time.monotonic()
        self._wall_before_s = 0.0
        self._first_step = 0
        self._trained_s = 0.0  # by this process, without saving and validating

    def resume(self, step: int, tokens: int, started: float) -> None:
        """Go on after ``step`` steps and ``tokens``: later lines are cut, what stays is told to the tracker.

        ``started`` is the `time.monotonic` from which this process's share of the wall time counts.
        """
        self._started = started
        # Time spent on steps that a kill took back was spent all the same.
        records = self._lines.read()
        self._wall_before_s = float(records[-1]["wall_s"]) if records else 0.0
        kept = self._lines.cut_after(step)
        self.last = kept[-1] if kept else None
        self._tokens_shown, self._first_step = tokens, step
        if records and self._tracker is not None:
            self._tracker.resume()
        self._window_started = time.monotonic()

    def wall_s(self) -> float:
        """Return the seconds spent on this run so far, by all its processes one after the other."""
        return self._wall_before_s + time.monotonic() - self._started

    def leave_out(self, seconds: float) -> None:
        """Take out of the time that tokens per second count: they are of training, not of saving."""
        self._window_started += seconds

    def show(
        self,
        done: int,
        step: StepDone,
        statistics: LossStatistics,
        skipped_steps: int,
        *,
        scale_too_high: int = 0,
        work: Work | None = None,
        measured: Mapping[str, float] | None = None,
    ) -> list[str]:
        """Record where training is after ``done`` steps, of which ``step`` was the last, and return lines for people.

        ``work`` is what all ranks computed since the last record, ``measured`` what validation found after this step.
        """
        means, seen = statistics.take_window(), statistics.seen()
        tokens = seen.all_tokens
        now = time.monotonic()
        window_s = max(now - self._window_started, 1e-9)
        speed = (tokens - self._tokens_shown) / window_s
        self._trained_s += window_s
        self._tokens_shown, self._window_started = tokens, now
        record: dict[str, Any] = {
            "step": done,
            "phase": self._phases[step.phase],
            **named_means(means),
            "learning_rate": step.learning_rate,
            "gradient_norm": step.result.gradient_norm if step.result.applied else None,
            "skipped_steps": skipped_steps,
            "tokens": tokens,
            "tokens_per_second": round(speed, 1),
            "wall_s": round(self.wall_s(), 3),
            "time": round(time.time(), 3),
        }
        if scale_too_high:  # fp16 alone
            record["steps_scale_too_high"] = scale_too_high
        if work is not None and work.peak_flops is not None:
            record["mfu"] = round(work.flops / window_s / work.peak_flops, 5)
        record["time_left_s"] = round(self._trained_s / max(done - self._first_step, 1) * (self._total_steps - done), 1)
        if self._drawn is not None:
            record.update(self._drawn(done, seen))
        if self._memory is not None:
            record["peak_memory_bytes"] = self._memory.peak_bytes
        if torch.cuda.is_available():
            record["peak_device_memory_bytes"] = torch.cuda.max_memory_allocated()
        record.update({name: value if math.isfinite(value) else None for name, value in (measured or {}).items()})
        self._lines.append(record)
        if self._tracker is not None:
            self._tracker.log_line(record)
        self.last = record
        validated = validation_line(record)
        return [console_line(record, self._total_steps), *([] if validated is None else [validated])]


def named_means(means: WindowMeans) -> dict[str, float | None]:
    """Return means by the names they have in records: ``loss``, ``loss/mlm``, ``accuracy/mlm``, ``loss/mlm/de``."""
    named: dict[str, float | None] = {"loss": means.loss}
    named.update({f"loss/{measure}": value for measure, value in means.objectives.items()})
    named.update({f"accuracy/{measure}": value for measure, value in means.accuracies.items()})
    named.update({f"loss/{measure}/{language}": value for (measure, language), value in means.languages.items()})
    return named
