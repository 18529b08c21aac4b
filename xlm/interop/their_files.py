"""Files of a transformers folder: its configuration, and its weights in one file or in parts. No code of the folder's is run."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from xlm.errors import UserError
from xlm.interop.family import TheirConfig
from xlm.runs.permissions import as_other_files
from xlm.runs.progress import track
from xlm.runs.stage import write_json

CONFIG = "config.json"
SAFETENSORS = "model.safetensors"
PICKLED = "pytorch_model.bin"
# The marks of folders whose weights mean something only together with what is not in their tensors.
_FOREIGN = {
    "auto_map": "code of its own, which is never run",
    "quantization_config": "quantised weights",
}


def read_their_config(folder: Path) -> TheirConfig:
    """Return ``config.json``; raises UserError where it is missing, damaged or asks for code of its own."""
    path = folder / CONFIG
    config = _read_json(path, "there is no config.json here; pass a folder that transformers' save_pretrained wrote.")
    for key, what in _FOREIGN.items():
        if config.get(key):
            raise UserError(f"this configuration asks for {what} ({key}); use a checkpoint of the plain model.", file=path)
    return config


def read_their_weights(folder: Path) -> dict[str, Tensor]:
    """Return all tensors of a folder: safetensors before pickled ones, whole before in parts."""
    for name in (SAFETENSORS, PICKLED):
        if (folder / name).is_file():
            return _read_part(folder / name)
        if (folder / f"{name}.index.json").is_file():
            return _read_parts(folder, f"{name}.index.json")
    raise UserError(f"there are no weights here; {SAFETENSORS} or {PICKLED}, or either in parts with an index, is expected.", file=folder)


def _read_parts(folder: Path, index_name: str) -> dict[str, Tensor]:
    index = _read_json(folder / index_name, "")
    places = index.get("weight_map")
    if not isinstance(places, dict) or not places:
        raise UserError("this index names no tensors (weight_map); download it again.", file=folder / index_name)
    names = sorted(set(places.values()))
    if any(Path(name).name != name for name in names):
        raise UserError("this index names files outside of its folder; download it again.", file=folder / index_name)
    tensors: dict[str, Tensor] = {}
    for name in track(names, "weights", total=len(names), unit="files"):
        part = _read_part(folder / name)
        missing = [tensor for tensor, place in places.items() if place == name and tensor not in part]
        if missing:
            raise UserError(f"tensor '{missing[0]}' is not in this part, though the index says so; download it again.", file=folder / name)
        tensors |= part
    return tensors


def _read_part(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except FileNotFoundError:
        raise UserError("this part of the weights is missing; download it again.", file=path) from None
    except (SafetensorError, OSError, RuntimeError, pickle.UnpicklingError, EOFError, ValueError):
        raise UserError("these weights are damaged, or hold more than tensors; download them again.", file=path) from None
    if not isinstance(loaded, Mapping) or not all(isinstance(tensor, Tensor) for tensor in loaded.values()):
        raise UserError("this file holds something else than named tensors; pass a model's state dict.", file=path)
    return dict(loaded)


def _read_json(path: Path, missing: str) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(missing, file=path) from None
    except (OSError, ValueError):
        raise UserError("this file is not readable as JSON; download it again.", file=path) from None
    if not isinstance(value, dict):
        raise UserError("this file holds no JSON object; download it again.", file=path)
    return value


def write_their_files(folder: Path, config: TheirConfig, tensors: Mapping[str, Tensor]) -> None:
    """Write ``config.json`` and ``model.safetensors``."""
    write_json(folder / CONFIG, dict(config))
    # Parts of one matrix share its memory, which safetensors refuses.
    save_file({name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}, folder / SAFETENSORS, {"format": "pt"})
    as_other_files(folder / SAFETENSORS)
