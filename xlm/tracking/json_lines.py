"""``metrics.jsonl``: one JSON object a logged step, the record that needs nothing else to work.

On resuming it is cut back to the step that training goes on from, so that the file always holds one
continuous curve, whatever was killed in between.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# Of a record, what says when it was made and is no metric.
STEP, TIME = "step", "time"


class JsonLines:
    """Append objects with a ``step`` to a file, flushed line by line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one line; ``record`` has an integer ``step``. Floats are written so that they read back exactly."""
        line = json.dumps(dict(record), ensure_ascii=False, allow_nan=False)
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the records in order, holding one at a time; a line torn by a kill, and what follows it, is left out."""
        try:
            stream = self.path.open("rb")
        except FileNotFoundError:
            return
        with stream:
            for line in stream:
                if not line.endswith(b"\n"):
                    return
                try:
                    yield json.loads(line)
                except ValueError:
                    return

    def read(self) -> list[dict[str, Any]]:
        """Return all records in order."""
        return list(self)

    def cut_after(self, step: int) -> list[dict[str, Any]]:
        """Drop records of later steps, atomically, and return the ones that stay."""
        kept = [record for record in self.read() if int(record[STEP]) <= step]
        if self.path.exists():
            partial = self.path.with_name(f".{self.path.name}.partial")
            with partial.open("w", encoding="utf-8") as stream:
                for record in kept:
                    stream.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
                stream.flush()
                os.fsync(stream.fileno())
            partial.replace(self.path)
        return kept


def metrics_of(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a record by name, in its order."""
    return {
        name: float(value)
        for name, value in record.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in (STEP, TIME)
    }
