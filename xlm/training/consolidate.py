"""A checkpoint of any number of ranks as plain files: weights, what they are of, and, if asked for, the whole optimizer state.

Works where nothing of the cluster is: no torch, no DeepSpeed, nothing that is unpickled. Numbers go from file to file a few
megabytes at a time, so that memory does not grow with the model. What is read is compared with the checkpoint's list first.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xlm.errors import UserError
from xlm.runs.permissions import as_other_files
from xlm.training.checkpoint_files import COMPLETE, DESCRIPTION, WEIGHTS, verify_checkpoint
from xlm.training.fragments import STATE, StoredParameter, StoredState, tensor_name
from xlm.training.tensor_file import TensorFile, TensorPlace, write_tensor_file

OPTIMIZER = "optimizer.safetensors"
WRITTEN = frozenset({WEIGHTS, DESCRIPTION, OPTIMIZER})


@dataclass(frozen=True)
class Consolidated:
    """What was written."""

    step: int
    parameters: int  # tensors
    elements: int
    moments: tuple[str, ...]  # names of the optimizer's, in order; none without the optimizer, or before its first step
    world_size: int | None  # of the ranks that wrote the optimizer's state


def consolidate(checkpoint: Path, folder: Path, *, with_optimizer: bool) -> Consolidated:
    """Write the files of ``checkpoint`` into an empty folder.

    Raises UserError where ``checkpoint`` is none, or a file that is needed is missing, damaged or at odds with another.
    """
    stored = _verified_state(checkpoint, with_optimizer=with_optimizer)
    weights = TensorFile(checkpoint / WEIGHTS)
    description = _description(checkpoint, weights)
    _copy(weights, folder / WEIGHTS)
    shutil.copyfile(checkpoint / DESCRIPTION, folder / DESCRIPTION)
    moments: tuple[str, ...] = ()
    if stored is not None:
        _check_same_parameters(weights, stored, checkpoint)
        moments = _write_optimizer(stored, folder / OPTIMIZER)
    return Consolidated(
        step=int(description["step"]),
        parameters=len(weights.tensors),
        elements=sum(place.elements for place in weights.tensors.values()),
        moments=moments,
        world_size=stored.world_size if stored is not None else None,
    )


def check_replaceable(folder: Path) -> None:
    """Raise a UserError for a folder that holds anything else than what is written here."""
    strange = sorted({path.name for path in folder.iterdir()} - WRITTEN) if folder.is_dir() else [folder.name]
    if strange:
        raise UserError(f"this is not replaced: it holds '{strange[0]}', which was not written here; name another folder.", file=folder)


def _verified_state(checkpoint: Path, *, with_optimizer: bool) -> StoredState | None:
    if not (checkpoint / COMPLETE).is_file():
        raise UserError(
            f"this is not a complete checkpoint (it has no {COMPLETE}); pass a folder like train/checkpoints/step-00000100.",
            file=checkpoint,
        )
    verify_checkpoint(checkpoint, {WEIGHTS, DESCRIPTION})
    if not with_optimizer:
        return None
    stored = StoredState.open(checkpoint)
    verify_checkpoint(checkpoint, {file.path.name for file in stored.files})
    return stored


def _description(checkpoint: Path, weights: TensorFile) -> dict[str, Any]:
    path = checkpoint / DESCRIPTION
    try:
        description: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        elements = int(description["elements"])
        int(description["step"])
    except (ValueError, KeyError, TypeError):
        raise UserError("this description is damaged; use another checkpoint.", file=path) from None
    found = sum(place.elements for place in weights.tensors.values())
    if found != elements:
        raise UserError(f"holds {found:,} numbers where {elements:,} were written; use another checkpoint.", file=weights.path)
    return description


def _check_same_parameters(weights: TensorFile, stored: StoredState, checkpoint: Path) -> None:
    for name in sorted({*weights.tensors, *stored.parameters}):
        place, parameter = weights.tensors.get(name), stored.parameters.get(name)
        if place is None or parameter is None or place.shape != parameter.shape:
            raise UserError(f"weights and optimizer state do not agree on '{name}'; use another checkpoint.", file=checkpoint)


def _copy(source: TensorFile, path: Path) -> None:
    contents = (part for name, place in source.tensors.items() for part in source.chunks(name, 0, place.elements))
    write_tensor_file(path, source.tensors, contents, source.metadata)
    as_other_files(path)


def _write_optimizer(stored: StoredState, path: Path) -> tuple[str, ...]:
    parameters = list(stored.parameters.values())
    places = {tensor_name(moment, one.name): TensorPlace(one.dtype(moment), one.shape) for one in parameters for moment in one.moments}
    scalars = {one.name: {key: value for key, (_, value) in one.scalars.items()} for one in parameters}
    about = {"scalars": scalars, "counters": dict(stored.counters), "loss_scale": stored.loss_scale}
    write_tensor_file(path, places, _moments(parameters), {"format": "pt", STATE: json.dumps(about)})
    as_other_files(path)
    return tuple(sorted({moment for one in parameters for moment in one.moments}))


def _moments(parameters: list[StoredParameter]) -> Iterator[bytearray]:
    for parameter in parameters:
        for moment in parameter.moments:
            yield from parameter.chunks(moment)
