"""Steps that changed nothing because their gradient was not finite: counted on all ranks alike, written down, and limited.

A loss scale of fp16 that is too high, which is how dynamic scaling finds its value, is counted apart and has no limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from xlm.config.training import NonFiniteSection
from xlm.errors import UserError
from xlm.tracking.json_lines import JsonLines
from xlm.training.distributed import Process, gather_numbers
from xlm.training.step_runner import StepDone

SKIPPED = "skipped.jsonl"
_NAMED = 5  # steps that the sentence which ends a run names


class SkippedSteps:
    """What was skipped since step 0; rank 0 writes a line of ``skipped.jsonl`` for each."""

    def __init__(
        self,
        section: NonFiniteSection,
        phases: Sequence[str],
        process: Process,
        folder: Path,
        show_batch: Callable[[int], str] | None = None,
    ) -> None:
        """``phases`` are the names; ``show_batch`` gives the command that prints the batch of a step."""
        self._section, self._phases, self._process = section, phases, process
        self._lines = JsonLines(folder / SKIPPED) if process.is_main else None
        self._show_batch = show_batch or (lambda step: f"python pipelines/show_batch.py --recipe FILE --step {step}")
        self.not_finite = 0
        self.scale_too_high = 0
        self._in_a_row = 0  # steps that were not finite since the last one that changed weights
        self._latest: list[int] = []

    def state(self) -> dict[str, Any]:
        """Return the counts, for a checkpoint."""
        counts = {"not_finite": self.not_finite, "scale_too_high": self.scale_too_high, "in_a_row": self._in_a_row}
        return {**counts, "latest": self._latest}

    def resume(self, step: int, state: Mapping[str, Any] | None) -> None:
        """Go on at ``step`` with the counts of a checkpoint; lines of later steps are cut."""
        if state is not None:
            self.not_finite, self.scale_too_high = int(state["not_finite"]), int(state["scale_too_high"])
            self._in_a_row, self._latest = int(state["in_a_row"]), list(state["latest"])
        if self._lines is not None:
            self._lines.cut_after(step - 1)

    def after(self, step: int, taken: StepDone) -> str | None:
        """Count a step on every rank; return a line for people where it was skipped.

        Raises UserError, on every rank alike, where more steps were not finite than the recipe allows.
        """
        if taken.result.applied:
            self._in_a_row = 0
            return None
        first_of_scale = taken.result.scale_too_high and not self.scale_too_high
        if taken.result.scale_too_high:
            self.scale_too_high += 1
        else:
            self.not_finite += 1
            self._in_a_row += 1
            self._latest = [*self._latest, step][-_NAMED:]
        record = self._record(step, taken)
        if self._lines is not None:
            self._lines.append(record)
        self._check_limits()
        if taken.result.scale_too_high:
            return f"step {step:,} skipped: {record['reason']}; this is how it finds its value." if first_of_scale else None
        return f"step {step:,} skipped: {record['reason']}{_where(record['where'])}. Its batch: {record['show_batch']}"

    def _record(self, step: int, taken: StepDone) -> dict[str, Any]:
        losses = gather_losses(taken.losses, self._process)
        where = [
            {"rank": rank, "micro_batch": number}
            for rank, of_rank in enumerate(losses)
            for number, loss in enumerate(of_rank)
            if not math.isfinite(loss)
        ]
        if where:
            reason = "its loss is not finite"
        elif taken.result.scale_too_high:
            reason = "the loss scale was too high for fp16 and was halved"
        else:
            reason = "its gradient is not finite, though its loss is"
        return {
            "step": step,
            "phase": self._phases[taken.phase],
            "reason": reason,
            "scale_too_high": taken.result.scale_too_high,
            "loss": _number(sum(loss for of_rank in losses for loss in of_rank)),
            "gradient_norm": _number(taken.result.gradient_norm),
            "learning_rate": taken.learning_rate,
            "where": where,
            "show_batch": self._show_batch(step),
        }

    def _check_limits(self) -> None:
        section = self._section
        if self._in_a_row >= section.limit_in_a_row:
            found, name, limit = f"{self._in_a_row} steps in a row", "limit_in_a_row", section.limit_in_a_row
        elif self.not_finite > section.limit:
            found, name, limit = f"{self.not_finite} steps of this run", "limit", section.limit
        else:
            return
        latest = ", ".join(f"{step:,}" for step in self._latest)
        raise UserError(
            f"the gradients of {found} were not finite (the latest: {latest}), and training.non_finite.{name} is {limit}; "
            f"train/{SKIPPED} says where, and `{self._show_batch(self._latest[-1])}` prints a batch. Lower the learning rate, "
            "lengthen the warm-up, clip gradients or train in fp32; the run goes on from its last checkpoint, or raise the limit."
        )


def gather_losses(losses: Sequence[torch.Tensor], process: Process) -> list[list[float]]:
    """Return the parts of the step's loss by rank and micro-batch; every rank calls it, with as many of them."""
    own = torch.stack([loss.detach().double().view(()) for loss in losses]) if losses else torch.zeros(0, dtype=torch.float64)
    # The bits of a float are integers, which ranks know how to tell each other, NaN and all.
    everyone = gather_numbers(own.view(torch.int64).tolist(), own.device)
    return [torch.tensor(numbers, dtype=torch.int64).view(torch.float64).tolist() for numbers in everyone]


def _number(value: float) -> float | str:
    """Return a number as JSON has it: those that are not finite as text."""
    return value if math.isfinite(value) else str(value)


def _where(places: Sequence[Mapping[str, int]]) -> str:
    if not places:
        return ""
    first = f"rank {places[0]['rank']}, micro-batch {places[0]['micro_batch']}"
    return f" ({first}{f' and {len(places) - 1} more' if places[1:] else ''})"
