"""A checkpoint's files: their names, and whether they are what was written. Needs no torch, so that any machine can ask."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import TypedDict

from xlm.errors import UserError
from xlm.runs.fingerprint import file_sha256

WEIGHTS = "model.safetensors"
DESCRIPTION = "model.json"
COMPLETE = "complete.json"


class FileRecord(TypedDict):
    """What ``complete.json`` says of a file."""

    size_bytes: int
    sha256: str


def verify_checkpoint(checkpoint: Path, only: Collection[str] | None = None) -> None:
    """Raise a UserError unless every file, or those of ``only``, is there with its size and sha256."""
    record = checkpoint / COMPLETE
    try:
        files: dict[str, FileRecord] = json.loads(record.read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError("this checkpoint has no readable list of its files.", file=record) from None
    for name in sorted(set(only or ()) - set(files)):
        raise UserError("this file is not among those that the checkpoint lists.", file=checkpoint / name)
    for name, expected in files.items():
        if only is None or name in only:
            _verify(checkpoint / name, expected)


def _verify(path: Path, expected: FileRecord) -> None:
    if not path.is_file():
        raise UserError("this file of a checkpoint is missing.", file=path)
    size_bytes = path.stat().st_size
    if size_bytes != expected["size_bytes"]:
        raise UserError(f"this file of a checkpoint is damaged ({size_bytes:,} bytes instead of {expected['size_bytes']:,}).", file=path)
    try:
        found = file_sha256(path)
    except OSError as error:  # a failing disk
        raise UserError(f"this file of a checkpoint cannot be read ({(error.strerror or str(error)).lower()}).", file=path) from None
    if found != expected["sha256"]:
        raise UserError("this file of a checkpoint is damaged (its sha256 is another).", file=path)
