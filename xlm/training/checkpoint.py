"""Checkpoints: complete or invisible, verified before they are trusted.

Promise 2. All ranks write into ``step-N.partial``; after a barrier rank 0 checks that every file is there,
flushes it to disk, writes ``complete.json`` with sizes and sha256, and renames the folder in one atomic
step. DeepSpeed's own `latest` file is not used: it is written before the other ranks are done. A kill at
any moment leaves a `.partial` folder, which the next save removes, and the checkpoints before it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from xlm.errors import UserError
from xlm.runs.fingerprint import file_sha256
from xlm.runs.permissions import as_other_files
from xlm.runs.stage import write_json
from xlm.training.distributed import Process, barrier
from xlm.training.engine import TrainingEngine
from xlm.training.weights import LoadedWeights, ModelDescription, load_model_weights, write_model_weights

__all__ = ["LoadedWeights", "latest_checkpoint", "load_checkpoint", "load_model_weights", "save_checkpoint"]

FOLDER = "checkpoints"
COMPLETE = "complete.json"
LOOP_STATE = "loop.json"
PAIRS_STATE = "contrastive.safetensors"  # the same on every rank
_NAME = re.compile(r"^step-(\d{8})$")


def save_checkpoint(
    engine: TrainingEngine,
    train_folder: Path,
    process: Process,
    description: ModelDescription,
    loop_state: Mapping[str, Any],
    keep_last: int,
) -> Path:
    """Write the checkpoint of ``description.step``; every rank must call this. Returns its folder.

    ``loop_state`` is rank 0's JSON beside the weights. Older checkpoints beyond ``keep_last`` are removed
    only once the new one stands.
    """
    final = train_folder / FOLDER / f"step-{description.step:08d}"
    partial = final.with_name(final.name + ".partial")
    if process.is_main:
        _remove_partials(final.parent)
        partial.mkdir(parents=True)
    barrier()
    engine.save(partial)
    weights = dict(engine.full_weights())
    if process.is_main:
        write_model_weights(partial, weights, description)
        write_json(partial / LOOP_STATE, loop_state)
        if pairs := engine.objective.pairs.state():
            save_file({name: tensor.cpu().contiguous() for name, tensor in pairs.items()}, partial / PAIRS_STATE)
            as_other_files(partial / PAIRS_STATE)
    barrier()
    if process.is_main:
        _complete(partial, final, description.step, _expected_files(engine, process))
        _retain(final, keep_last)
    barrier()
    return final


def load_checkpoint(engine: TrainingEngine, checkpoint: Path) -> dict[str, Any]:
    """Take up a verified checkpoint on every rank and return its loop state."""
    engine.load(checkpoint)
    if engine.objective.pairs.state():
        engine.objective.pairs.load(load_file(checkpoint / PAIRS_STATE))
    state: dict[str, Any] = json.loads((checkpoint / LOOP_STATE).read_text(encoding="utf-8"))
    return state


def latest_checkpoint(train_folder: Path) -> Path | None:
    """Return the newest checkpoint whose files are whole; damaged ones are skipped with a warning on stderr."""
    for path in reversed(complete_checkpoints(train_folder)):
        try:
            verify_checkpoint(path)
        except UserError as error:
            print(f"warning: {error} It is skipped.", file=sys.stderr)
            continue
        return path
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


def verify_checkpoint(checkpoint: Path) -> None:
    """Raise a UserError unless every file is there with its size and sha256."""
    record = checkpoint / COMPLETE
    try:
        files: dict[str, dict[str, Any]] = json.loads(record.read_text(encoding="utf-8"))["files"]
    except (OSError, json.JSONDecodeError, KeyError, TypeError):
        raise UserError("this checkpoint has no readable list of its files.", file=record) from None
    for name, expected in files.items():
        path = checkpoint / name
        if not path.is_file():
            raise UserError("this file of a checkpoint is missing.", file=path)
        if path.stat().st_size != expected["size_bytes"]:
            raise UserError(
                f"this file of a checkpoint is damaged ({path.stat().st_size:,} bytes instead of {expected['size_bytes']:,}).", file=path
            )
        if file_sha256(path) != expected["sha256"]:
            raise UserError("this file of a checkpoint is damaged (its sha256 is another).", file=path)


def _complete(partial: Path, final: Path, step: int, expected: list[str]) -> None:
    files: dict[str, dict[str, Any]] = {}
    for path in sorted(path for path in partial.rglob("*") if path.is_file()):
        _flush_to_disk(path)
        name = path.relative_to(partial).as_posix()
        files[name] = {"size_bytes": path.stat().st_size, "sha256": file_sha256(path)}
    missing = [name for name in expected if not files.get(name, {}).get("size_bytes")]
    if missing:
        raise RuntimeError(f"{partial}: '{missing[0]}' was not written; the checkpoint of step {step} is not completed")
    write_json(partial / COMPLETE, {"step": step, "files": files})
    _flush_to_disk(partial)
    if final.exists():
        shutil.rmtree(final)  # passed over as damaged, or it would have been resumed from
    partial.rename(final)
    _flush_to_disk(final.parent)


def _expected_files(engine: TrainingEngine, process: Process) -> list[str]:
    names = ["model.safetensors", "model.json", LOOP_STATE]
    if engine.objective.pairs.state():
        names.append(PAIRS_STATE)
    if engine.stage == 3:
        names += [f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt" for rank in range(process.world_size)]
    else:
        names.append("mp_rank_00_model_states.pt")
    if engine.stage > 0:
        prefix = "bf16_" if engine.is_bf16 else ""
        names += [f"{prefix}zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in range(process.world_size)]
    return names


def _retain(written: Path, keep_last: int) -> None:
    # The one just written is whole and stays. What is newer than it was passed over as damaged.
    others = [path for path in complete_checkpoints(written.parent.parent) if path != written]
    older = [path for path in others if path.name < written.name]
    newer = [path for path in others if path.name > written.name]
    for path in [*newer, *older[: max(len(older) - (keep_last - 1), 0)]]:
        doomed = path.with_name(path.name + ".partial")  # out of sight before it is taken apart
        path.rename(doomed)
        shutil.rmtree(doomed)


def _remove_partials(folder: Path) -> None:
    for path in folder.glob("step-*.partial") if folder.is_dir() else ():
        shutil.rmtree(path)


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
