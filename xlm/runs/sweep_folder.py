"""The folder of a sweep: a run folder for each point, and which points have been trained to their end as they are asked for now.

Training writes its record into a point's folder; the sweep writes beside it what it had asked for, so that a training with
another recipe is not taken for this one.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xlm.runs.folder import RunFolder
from xlm.runs.stage import RECORD, write_json
from xlm.runs.sweep import Point

_SWEEP, _POINT, _LOG = "sweep.json", "point.json", "pretrain.log"


@dataclass(frozen=True)
class SweepFolder:
    """Where a sweep keeps its points."""

    root: Path

    def point(self, point: Point) -> RunFolder:
        """Return the run folder of a point."""
        return RunFolder(self.root / point.name)

    def log(self, point: Point) -> Path:
        """Return the file with what the point's training prints."""
        return self.point(point).root / _LOG

    def key(self) -> str:
        """Return the key of the sweep's MLflow run, the same after a restart."""
        return str(_read(self.root / _SWEEP).get("key") or f"sweep-{uuid.uuid4().hex}")

    def describe(self, key: str, points: Sequence[Point]) -> None:
        """Write down the key and the points."""
        write_json(self.root / _SWEEP, {"key": key, "points": {point.name: dict(point.values) for point in points}})

    def when_finished(self, point: Point) -> int | None:
        """Return when the training in a point's folder was finished (ns), perhaps with another recipe; None where it is not."""
        try:
            return (self.point(point).train / RECORD).stat().st_mtime_ns
        except FileNotFoundError:
            return None

    def is_finished(self, point: Point) -> bool:
        """Return whether a point has been trained to its end, as it is asked for now."""
        asked = _read(self.point(point).root / _POINT).get("fingerprint")
        return self.when_finished(point) is not None and asked == point.fingerprint

    def mark_finished(self, point: Point) -> None:
        """Write down what the finished training was asked for."""
        write_json(self.point(point).root / _POINT, point.as_json())

    def last_line(self, point: Point) -> str:
        """Return the last line of a point's log that says something, an error's before others."""
        lines = [line for line in self.log(point).read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error: ")]
        return next(iter((errors or lines)[-1:]), "(nothing was printed)")


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
