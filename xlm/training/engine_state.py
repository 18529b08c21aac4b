"""What the engine holds beside the weights, in a form that any number of ranks and any ZeRO stage can take up again.

Weights are in ``model.safetensors`` in fp32 already. Here each rank writes the moments of the pieces it holds
(`xlm.training.fragments`), and reads from all files the pieces that it is to hold now. Nothing is pickled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from xlm.errors import UserError
from xlm.runs.permissions import as_other_files
from xlm.training.engine_layout import Piece, pieces, stepped_optimizer
from xlm.training.fragments import (
    STATE,
    Fragment,
    Scalar,
    StateHeader,
    StoredParameter,
    StoredState,
    expected_files,
    state_file,
    tensor_name,
)
from xlm.training.tensor_file import TensorFile, TensorPlace, write_tensor_file
from xlm.training.weights import WEIGHTS

if TYPE_CHECKING:
    from xlm.training.engine import TrainingEngine

__all__ = ["RankState", "expected_files", "read_state", "snapshot", "write_rank_state"]

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
COUNTERS = ("global_steps", "skipped_steps")


@dataclass(frozen=True)
class RankState:
    """One rank's part of the state on the CPU; a copy shares nothing with the engine, which may go on training."""

    tensors: Mapping[str, Tensor]  # moments by `tensor_name`, flat
    header: StateHeader


def snapshot(engine: TrainingEngine, *, copy: bool = True) -> RankState:
    """Copy what this rank holds; no rank waits for another. Without ``copy`` the engine must not train until it is written."""
    held = pieces(engine) if engine.stage > 0 or dist.get_rank() == 0 else []  # stage 0: all ranks hold the same
    optimizer = stepped_optimizer(engine)
    tensors: dict[str, Tensor] = {}
    fragments = []
    for piece in held:
        moments: list[str] = []
        scalars: dict[str, Scalar] = {}
        for key, value in optimizer.state.get(piece.flat, {}).items():
            if isinstance(value, Tensor) and value.shape == piece.flat.shape:
                moments.append(key)
                tensors[tensor_name(key, piece.name)] = piece.of(value).to("cpu", copy=copy)
            else:
                scalars[key] = _scalar(key, value)
        fragments.append(Fragment(piece.name, piece.start, piece.stop, piece.shape, tuple(sorted(moments)), scalars))
    counters = {name: int(getattr(engine.wrapped_engine, name)) for name in COUNTERS}
    loss_scale = None if engine.loss_scale is None else engine.loss_scale.state()
    return RankState(tensors, StateHeader(tuple(fragments), counters, loss_scale, engine.stage))


def write_rank_state(state: RankState, folder: Path, rank: int, world_size: int) -> None:
    """Write a rank's file and flush it to disk; may run in a thread. Raises OSError where the disk does not take it."""
    path = folder / state_file(rank, world_size)
    places = {name: TensorPlace(NAMES[tensor.dtype], tuple(tensor.shape)) for name, tensor in state.tensors.items()}
    header = replace(state.header, rank=rank, world_size=world_size)
    contents = (tensor.view(torch.uint8).numpy().data for tensor in state.tensors.values())
    write_tensor_file(path, places, contents, {"format": "pt", STATE: header.to_json()})
    as_other_files(path)


def read_state(engine: TrainingEngine, folder: Path) -> None:
    """Take up weights and optimizer state from a checkpoint of any number of ranks and any stage.

    Raises UserError where something is missing, there twice, or of another model. No rank waits for another.
    """
    stored, weights = StoredState.open(folder), TensorFile(folder / WEIGHTS)
    held = pieces(engine)
    _check_same_model(engine, stored, weights, folder)
    with torch.no_grad():
        for piece in held:
            piece.master.copy_(_as_tensor(weights.read(piece.name, piece.start, piece.stop), torch.float32))
        _set_computed_weights(engine, weights)
        for flat, of_flat in _by_flat(held):
            _set_moments(engine, flat, of_flat, stored, folder)
    _set_counters(engine, stored)


def _check_same_model(engine: TrainingEngine, stored: StoredState, weights: TensorFile, folder: Path) -> None:
    shapes = {name: tuple(getattr(one, "ds_shape", one.shape)) for name, one in engine.objective.model.named_parameters()}
    for name, shape in shapes.items():
        for what, found in (("weights", weights.tensors.get(name)), ("optimizer state", stored.parameters.get(name))):
            if found is None:
                raise UserError(f"this checkpoint has no {what} of '{name}'; it is of another model, or damaged.", file=folder)
            if found.shape != shape:
                raise UserError(
                    f"the {what} of '{name}' have shape {found.shape}, the model needs {shape}: it is of another model.", file=folder
                )
        if weights.tensors[name].dtype != "F32":
            raise UserError(f"'{name}' is {weights.tensors[name].dtype}, weights of a checkpoint are F32.", file=weights.path)
    for name in sorted({*weights.tensors, *stored.parameters} - set(shapes)):
        raise UserError(f"'{name}' is not part of the model; this checkpoint is of another one.", file=folder)


def _set_computed_weights(engine: TrainingEngine, weights: TensorFile) -> None:
    """Give the numbers that forward computes with their values, rounded from fp32 as DeepSpeed does after a step."""
    parameter: Any  # stage 3 gives it attributes
    for name, parameter in engine.objective.model.named_parameters():
        if engine.stage < 3:
            full = _as_tensor(weights.read(name, 0, parameter.numel()), torch.float32)
            parameter.data.copy_(full.view(parameter.shape))
            continue
        length, elements = parameter.partition_numel(), int(parameter.ds_numel)
        start, stop = min(dist.get_rank() * length, elements), min((dist.get_rank() + 1) * length, elements)
        parameter.ds_tensor.data[: stop - start].copy_(_as_tensor(weights.read(name, start, stop), torch.float32))
        if parameter.ds_status.name == "AVAILABLE":  # small ones stay gathered
            full = _as_tensor(weights.read(name, 0, elements), torch.float32)
            parameter.data.copy_(full.view(parameter.ds_shape))


def _by_flat(held: list[Piece]) -> Iterator[tuple[Tensor, list[Piece]]]:
    found: dict[int, list[Piece]] = {}
    for piece in held:
        found.setdefault(id(piece.flat), []).append(piece)
    for of_flat in found.values():
        yield of_flat[0].flat, of_flat


def _set_moments(engine: TrainingEngine, flat: Tensor, held: list[Piece], stored: StoredState, folder: Path) -> None:
    """Make the optimizer's state of one flat tensor; parameters that never had a gradient get zeros beside others that had."""
    optimizer = stepped_optimizer(engine)
    optimizer.state.pop(flat, None)
    stateful = [stored.parameters[piece.name] for piece in held if stored.parameters[piece.name].moments]
    if not stateful:
        return  # no step was applied yet; the optimizer makes its state at the first
    state: dict[str, Any] = {}
    for moment in sorted({moment for parameter in stateful for moment in parameter.moments}):
        dtype = next(DTYPES[parameter.dtype(moment)] for parameter in stateful if moment in parameter.moments)
        state[moment] = torch.zeros_like(flat, dtype=dtype, requires_grad=False)
        for piece in held:
            if moment in stored.parameters[piece.name].moments:
                piece.of(state[moment]).copy_(_as_tensor(stored.parameters[piece.name].read(moment, piece.start, piece.stop), dtype))
    for key, (kind, value) in _common_scalars(stateful, folder).items():
        state[key] = value if kind == "number" else torch.tensor(value, dtype=DTYPES[kind], device=flat.device)  # a fused step counts there
    optimizer.state[flat] = state
    if hasattr(engine.wrapped_optimizer, "_hp_optimizer_states_linked"):
        engine.wrapped_optimizer._hp_optimizer_states_linked = False  # DeepSpeed looks again after the next step


def _common_scalars(stateful: list[StoredParameter], folder: Path) -> Mapping[str, Scalar]:
    first = stateful[0]
    for other in stateful:
        if other.scalars != first.scalars:
            raise UserError(
                f"the optimizer counts {dict(other.scalars)} for '{other.name}' and {dict(first.scalars)} for '{first.name}', which this "
                "ZeRO stage steps together; go on with the stage that this checkpoint was written at.",
                file=folder,
            )
    return first.scalars


def _set_counters(engine: TrainingEngine, stored: StoredState) -> None:
    for name in COUNTERS:
        setattr(engine.wrapped_engine, name, int(stored.counters[name]))
    if engine.loss_scale is not None and stored.loss_scale is not None:
        engine.loss_scale.load(stored.loss_scale)


def _scalar(key: str, value: Any) -> Scalar:  # noqa: ANN401
    if isinstance(value, Tensor) and value.dim() == 0:
        return NAMES[value.dtype], value.item()
    if isinstance(value, bool | int | float):
        return "number", value
    raise RuntimeError(f"the optimizer keeps '{key}', which is neither as long as its parameter nor one number; it cannot be saved")


def _as_tensor(content: bytearray, dtype: torch.dtype) -> Tensor:
    # A rank's part of a small parameter may be empty, which torch does not take from a buffer.
    return torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)
