"""Stages: idempotent, and complete or invisible.

A stage's folder appears by one rename after everything in it was written; ``stage.json`` inside it
records the fingerprints of its inputs, so that the same command run again skips it, and a changed
input makes it anew. A killed stage leaves only a ``.NAME.partial`` folder, which the next run removes.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xlm.errors import UserError
from xlm.runs.fingerprint import combine
from xlm.runs.lock import only_writer
from xlm.runs.memory import MemorySampler

RECORD = "stage.json"
# The script that fills a folder of a run, for messages.
SCRIPTS = {
    "tasks": "build_tasks.py",
    "corpus": "build_corpus.py",
    "vocabulary": "build_vocab.py",
    "shards": "build_shards.py",
    "embeddings": "init_embeddings.py",
    "train": "pretrain.py",
    "zero_shot": "zero_shot.py",
    "code_switching": "code_switching.py",
}


@dataclass(frozen=True)
class StageRecord:
    """What a finished stage says about itself."""

    name: str
    fingerprint: str
    inputs: Mapping[str, str]
    summary: Mapping[str, Any]
    wall_s: float
    peak_memory_bytes: int


class Stage:
    """One stage of a run: where it writes, and from which inputs."""

    def __init__(self, folder: Path, name: str, inputs: Mapping[str, str]) -> None:
        self.folder = folder
        self.name = name
        self.inputs = dict(inputs)
        self.fingerprint = combine(self.inputs)

    def is_done(self) -> bool:
        """Return whether the folder holds this stage's output for exactly these inputs."""
        try:
            return read_record(self.folder).fingerprint == self.fingerprint
        except UserError:
            return False

    @contextmanager
    def write(self) -> Iterator[StageOutput]:
        """Yield where to write; on leaving without an error the result replaces the folder atomically.

        Raises UserError where another process is writing this stage.
        """
        with only_writer(self.folder, self.name):
            partial = self.folder.with_name(f".{self.folder.name}.partial")
            if partial.exists():
                shutil.rmtree(partial)
            partial.mkdir(parents=True)
            output = StageOutput(partial)
            started = time.monotonic()
            with MemorySampler(os.getpid()) as memory:
                yield output
            self._record(partial, output.summary, time.monotonic() - started, memory.peak_bytes)
            self._replace(partial)

    def finish_in_place(self, summary: Mapping[str, Any], wall_s: float, peak_memory_bytes: int) -> None:
        """Mark a folder that was filled over several processes (training) as done."""
        self._record(self.folder, summary, wall_s, peak_memory_bytes)

    def _record(self, folder: Path, summary: Mapping[str, Any], wall_s: float, peak_memory_bytes: int) -> None:
        record = {
            "name": self.name,
            "fingerprint": self.fingerprint,
            "inputs": self.inputs,
            "summary": dict(summary),
            "wall_s": round(wall_s, 3),
            "peak_memory_bytes": peak_memory_bytes,
        }
        write_json(folder / RECORD, record)

    def _replace(self, partial: Path) -> None:
        if self.folder.exists():
            # The old result goes first out of sight, then away: between the two renames a kill leaves no
            # folder at all, never a mixture.
            old = self.folder.with_name(f".{self.folder.name}.old")
            if old.exists():
                shutil.rmtree(old)
            self.folder.rename(old)
            partial.rename(self.folder)
            if old.is_symlink():  # a sweep's link to the stage of another run, which keeps it
                old.unlink()
            else:
                shutil.rmtree(old)
        else:
            partial.rename(self.folder)


class StageOutput:
    """The folder a running stage fills, and the summary it leaves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.summary: dict[str, Any] = {}


def read_record(folder: Path) -> StageRecord:
    """Read a stage's record; a UserError names the stage that has to run first."""
    path = folder / RECORD
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return StageRecord(**data)
    except FileNotFoundError:
        script = SCRIPTS.get(folder.name)
        hint = f"run pipelines/{script} first" if script else "run it first"
        raise UserError(f"the stage that writes '{folder.name}' has not finished; {hint}.", file=folder) from None
    except (ValueError, TypeError):  # not UTF-8, not JSON, or not a record
        raise UserError("this stage record is damaged; delete its folder and run the stage again.", file=path) from None


def write_json(path: Path, value: object) -> None:
    """Write JSON so that a reader sees the old file or the new one, never half of it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with partial.open("w", encoding="utf-8") as stream:
        json.dump(value, stream, ensure_ascii=False, indent=1, sort_keys=True)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(path)
