"""A profile of some steps of rank 0, on demand: a trace for chrome://tracing or ui.perfetto.dev, and a table of what took longest."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from xlm.errors import UserError

FOLDER = "profile"
MOST_STEPS = 50  # a longer trace is gigabytes, and no viewer opens it
_TABLE_ROWS = 40
_FORM = re.compile(r"steps=(\d+):(\d+)")


@dataclass(frozen=True)
class ProfiledSteps:
    """Steps ``first`` to before ``stop``, counted from 0 as everywhere."""

    first: int
    stop: int

    @classmethod
    def parse(cls, text: str, total_steps: int) -> ProfiledSteps:
        """Read ``steps=10:15`` (five steps); raises UserError for another form and for steps that the run does not have."""
        found = _FORM.fullmatch(text.strip())
        if found is None:
            raise UserError(f"--profile is '{text}'; give the first step and the one after the last: --profile steps=10:15.")
        first, stop = (int(number) for number in found.groups())
        if first >= stop:
            raise UserError(f"--profile steps={first}:{stop} has no step; the second number has to be larger: steps={first}:{first + 5}.")
        if stop > total_steps:
            raise UserError(f"--profile steps={first}:{stop} ends after this run's last step; its steps are 0 to {total_steps - 1:,}.")
        if stop - first > MOST_STEPS:
            raise UserError(f"--profile steps={first}:{stop} are {stop - first:,} steps, and a trace holds {MOST_STEPS}; give fewer.")
        return cls(first, stop)


class StepProfiler:
    """Profiles the given steps of this process and writes what it found; before and after them it does nothing."""

    def __init__(self, steps: ProfiledSteps, train_folder: Path) -> None:
        self._steps, self._folder = steps, train_folder / FOLDER
        self._profile: profile | None = None
        self._began = 0

    def before(self, step: int) -> None:
        """Begin, if this is the first of the steps that this process takes."""
        if self._profile is None and self._steps.first <= step < self._steps.stop:
            activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
            self._profile = profile(activities=activities, acc_events=True)
            self._began = step
            self._profile.start()

    def after(self, done: int, *, last: bool = False) -> str | None:
        """End after ``done`` steps, if those were all (or the process ends: ``last``), and say where the files are."""
        if self._profile is None or (done < self._steps.stop and not last):
            return None
        found, self._profile = self._profile, None
        found.stop()
        self._folder.mkdir(parents=True, exist_ok=True)
        trace, table = (self._folder / f"steps-{self._began}-{done}.{ending}" for ending in ("trace.json", "txt"))
        found.export_chrome_trace(str(trace))
        table.write_text(_table(found), encoding="utf-8")
        return f"profile of steps {self._began:,} to {done - 1:,}: {trace} (ui.perfetto.dev opens it), the longest operations in {table}"


def _table(found: profile) -> str:
    device = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
    return str(found.key_averages().table(sort_by=device, row_limit=_TABLE_ROWS, max_name_column_width=80)) + "\n"
