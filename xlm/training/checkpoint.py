"""Checkpoints as they lie on disk: complete or invisible, verified before they are trusted.

Promise 2. All ranks write into ``step-N.partial``; when all have, rank 0 writes ``complete.json`` with sizes and sha256
and renames the folder in one atomic step (`saving.py`). A kill at any moment leaves a `.partial` folder, which
the next start removes, and the checkpoints before it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from xlm.errors import UserError
from xlm.training.checkpoint_files import COMPLETE, FileRecord, verify_checkpoint
from xlm.training.engine import TrainingEngine
from xlm.training.weights import LoadedWeights, load_model_weights

__all__ = [
    "COMPLETE",
    "FileRecord",
    "LoadedWeights",
    "latest_checkpoint",
    "load_checkpoint",
    "load_model_weights",
    "verify_checkpoint",
]

FOLDER = "checkpoints"
LOOP_STATE = "loop.json"
PAIRS_STATE = "contrastive.safetensors"  # the same on every rank
_NAME = re.compile(r"^step-(\d{8})$")


def load_checkpoint(engine: TrainingEngine, checkpoint: Path) -> dict[str, Any]:
    """Take up a verified checkpoint on every rank and return its loop state."""
    engine.load(checkpoint)
    if engine.objective.pairs.state():
        engine.objective.pairs.load(load_file(checkpoint / PAIRS_STATE))
    state: dict[str, Any] = json.loads((checkpoint / LOOP_STATE).read_text(encoding="utf-8"))
    return state


def latest_checkpoint(train_folder: Path) -> Path | None:
    """Return the newest checkpoint whose files are whole, None where there are none; damaged ones are skipped with a warning on stderr.

    Raises UserError where all are damaged: a start from step 0 would remove them, and a disk that fails today may work tomorrow.
    """
    there = complete_checkpoints(train_folder)
    for path in reversed(there):
        try:
            verify_checkpoint(path)
        except UserError as error:
            print(f"warning: {error} It is skipped.", file=sys.stderr)
            continue
        return path
    if there:
        raise UserError(
            "no checkpoint here can be used (the warnings above say why); put their files right, or move this folder away to train from "
            "the start.",
            file=train_folder / FOLDER,
        )
    return None


def missing_checkpoint(train_folder: Path, step: int) -> str | None:
    """Return, as a sentence, why the checkpoint of ``step`` cannot be read; None where it is whole."""
    path = train_folder / FOLDER / f"step-{step:08d}"
    if not path.is_dir():
        return f"{path}: this checkpoint is missing."
    try:
        verify_checkpoint(path)
    except UserError as error:
        return str(error)
    return None


def complete_checkpoints(train_folder: Path) -> list[Path]:
    """Return the folders that were renamed into place, oldest first, without looking into their files."""
    folder = train_folder / FOLDER
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if _NAME.match(path.name))


def checkpoint_step(checkpoint: Path) -> int:
    """Return how many steps a checkpoint has behind it."""
    match = _NAME.match(checkpoint.name)
    if match is None:
        raise UserError("this is not a checkpoint; its folder is named like step-00000100.", file=checkpoint)
    return int(match.group(1))


def validation_loss(checkpoint: Path) -> float | None:
    """Return the validation loss that was measured at a checkpoint's step, if one was."""
    try:
        found = json.loads((checkpoint / LOOP_STATE).read_text(encoding="utf-8")).get("validation_loss")
    except (OSError, ValueError, AttributeError):
        return None
    return float(found) if isinstance(found, int | float) else None


def partial_folder(final: Path) -> Path:
    """Return where a checkpoint is written before it is renamed to ``final``."""
    return final.with_name(final.name + ".partial")


def remove_partials(folder: Path, *, ignore_errors: bool = False) -> None:
    """Remove what a kill left of checkpoints that were being written or removed."""
    for path in folder.glob("step-*.partial") if folder.is_dir() else ():
        shutil.rmtree(path, ignore_errors=ignore_errors)


def flush_to_disk(path: Path) -> None:
    """Have the system write a file, or the names in a folder, through to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
