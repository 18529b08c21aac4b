"""Tensors of an imported folder that our model has no place for, kept beside it for the way back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from xlm.errors import UserError
from xlm.runs.permissions import as_other_files

KEPT_FILE = "extras.safetensors"
GENERATOR = "generator/"  # before the names of a generator's, where two folders became one


@dataclass(frozen=True)
class KeptTensors:
    """The family that they came from (None: the model was not imported) and their tensors under their names."""

    family: str | None = None
    tensors: Mapping[str, Tensor] = field(default_factory=dict)

    def of(self, part: str, family: str) -> dict[str, Tensor]:
        """Return what belongs into one exported model: nothing where it goes to another family than it came from."""
        if family != self.family:
            return {}
        prefix = GENERATOR if part == "generator" else ""
        inside = {name: tensor for name, tensor in self.tensors.items() if name.startswith(GENERATOR) == bool(prefix)}
        return {name.removeprefix(prefix): tensor for name, tensor in inside.items()}


def write_kept(folder: Path, kept: KeptTensors) -> None:
    """Write ``extras.safetensors``, empty or not: it also says the family."""
    tensors = {name: tensor.contiguous() for name, tensor in kept.tensors.items()}
    save_file(tensors, folder / KEPT_FILE, {"family": kept.family or ""})
    as_other_files(folder / KEPT_FILE)


def read_kept(folder: Path) -> KeptTensors:
    """Return what lies beside a model, nothing for a checkpoint of our own; raises UserError for a damaged file."""
    path = folder / KEPT_FILE
    if not path.is_file():
        return KeptTensors()
    try:
        with safe_open(path, framework="pt") as file:
            return KeptTensors((file.metadata() or {}).get("family"), {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except (SafetensorError, OSError):
        raise UserError("this file is damaged; import the folder again.", file=path) from None
