"""The results of a sweep as lines and as JSON: what was set, and where each point's curve ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True)
class PointResult:
    """A point of a sweep and the records of its metrics.jsonl."""

    name: str
    values: Mapping[str, str]
    steps: int  # that its recipe has
    finished: bool
    exit_code: int
    lines: tuple[Json, ...]

    def last(self, metric: str) -> float | None:
        """Return the last value of a metric, None where it was never measured."""
        return next((float(line[metric]) for line in reversed(self.lines) if line.get(metric) is not None), None)

    @property
    def step(self) -> int:
        """The last step that was logged."""
        return int(self.lines[-1]["step"]) if self.lines else 0

    @property
    def state(self) -> str:
        """How it ended, in a word or two."""
        return "finished" if self.finished else f"failed ({self.exit_code})" if self.exit_code else "not finished"

    def as_json(self) -> dict[str, Any]:
        """Return what ``results.json`` says of a point."""
        numbers = {metric: self.last(metric) for metric in ("loss", "validation/loss")}
        return {"name": self.name, "values": dict(self.values), "state": self.state, "step": self.step, **numbers}


def sweep_table(results: Sequence[PointResult]) -> list[str]:
    """Return the table, the best point first: by validation loss where every finished point has one, else by training loss."""
    metric = ranking_metric(results)
    ordered = sorted(results, key=lambda result: (not result.finished, _or_infinite(result.last(metric))))
    keys = list(results[0].values) if results else []
    rows = [[*keys, "steps", "loss", "validation", "state"]]
    for result in ordered:
        numbers = [_shown(result.last("loss")), _shown(result.last("validation/loss"))]
        rows.append([*result.values.values(), f"{result.step:,} of {result.steps:,}", *numbers, result.state])
    if all(result.last("validation/loss") is None for result in results):
        rows = [[*row[:-2], row[-1]] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def ranking_metric(results: Sequence[PointResult]) -> str:
    """Return what points are compared by."""
    finished = [result for result in results if result.finished]
    return "validation/loss" if finished and all(result.last("validation/loss") is not None for result in finished) else "loss"


def _or_infinite(value: float | None) -> float:
    return float("inf") if value is None else value


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
