"""The weights of a checkpoint for one process: all that anything after training reads.

``model.safetensors`` holds every parameter once, in fp32; ``model.json`` says of which model. DeepSpeed is
not needed, nor the ranks that wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pydantic
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from xlm.config.model import ModelConfig
from xlm.config.model_spelling import unequal_fields
from xlm.errors import UserError
from xlm.model.pretraining import PretrainingModel
from xlm.runs.permissions import as_other_files
from xlm.runs.stage import write_json
from xlm.training.checkpoint_files import DESCRIPTION, WEIGHTS

__all__ = ["DESCRIPTION", "WEIGHTS", "LoadedWeights", "ModelDescription", "load_model_weights", "write_model_weights"]


@dataclass(frozen=True)
class LoadedWeights:
    """A full fp32 state dict of `PretrainingModel` and what it belongs to."""

    config: ModelConfig
    vocabulary_size: int
    vocabulary_fingerprint: str
    languages: tuple[str, ...]
    step: int
    precision: str  # trained in; the weights themselves are fp32
    state_dict: dict[str, Tensor]

    def build(self) -> PretrainingModel:
        """Return the model with these weights, on the CPU, in evaluation mode."""
        model = PretrainingModel(self.config, self.vocabulary_size, len(self.languages), seed=None)
        model.load_state_dict(self.state_dict, strict=True)
        model.tie_weights()
        return model.eval()


@dataclass(frozen=True)
class ModelDescription:
    """What ``model.json`` says."""

    config: Mapping[str, Any]
    vocabulary_size: int
    vocabulary_fingerprint: str
    languages: tuple[str, ...]
    step: int
    precision: str
    recipe_fingerprint: str
    elements: int = 0


def write_model_weights(folder: Path, weights: Mapping[str, Tensor], description: ModelDescription) -> None:
    """Write a full state dict and its description."""
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / WEIGHTS)
    as_other_files(folder / WEIGHTS)
    elements = sum(tensor.numel() for tensor in weights.values())
    write_json(folder / DESCRIPTION, {**asdict(description), "elements": elements})


def load_model_weights(checkpoint: Path, *, expect: ModelConfig | None = None, vocabulary_fingerprint: str | None = None) -> LoadedWeights:
    """Read the weights of a checkpoint folder for one process.

    Raises UserError when a file is missing or damaged, when names, shapes or the number of elements are
    not the model's, and when the checkpoint is of another model than ``expect`` or of another vocabulary.
    """
    description = _read_description(checkpoint)
    try:
        config = ModelConfig.model_validate(description.config)
    except pydantic.ValidationError:
        raise UserError("holds a model configuration of another version of this library.", file=checkpoint / DESCRIPTION) from None
    _check_expected(description, config, expect, vocabulary_fingerprint, checkpoint)
    try:
        state = load_file(checkpoint / WEIGHTS)
    except FileNotFoundError:
        raise UserError("this checkpoint has no weights; use another checkpoint.", file=checkpoint / WEIGHTS) from None
    except (SafetensorError, OSError):
        raise UserError("these weights are damaged; use another checkpoint.", file=checkpoint / WEIGHTS) from None
    languages = tuple(description.languages)
    _check_complete(state, config, description, checkpoint)
    return LoadedWeights(
        config,
        description.vocabulary_size,
        description.vocabulary_fingerprint,
        languages,
        description.step,
        description.precision,
        state,
    )


def _read_description(checkpoint: Path) -> ModelDescription:
    path = checkpoint / DESCRIPTION
    try:
        return ModelDescription(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UserError(
            "this is not a checkpoint (it has no model.json); pass a folder like train/checkpoints/step-00000100.", file=checkpoint
        ) from None
    except (json.JSONDecodeError, TypeError, UnicodeDecodeError):
        raise UserError("this description is damaged; use another checkpoint.", file=path) from None


def _check_expected(
    description: ModelDescription, config: ModelConfig, expect: ModelConfig | None, vocabulary: str | None, checkpoint: Path
) -> None:
    for name in () if expect is None else unequal_fields(config, expect):
        raise UserError(
            f"this checkpoint is of another model: its {name} is {getattr(config, name)}, the recipe's model.{name} is "
            f"{getattr(expect, name)}; use the recipe it was made with, or another checkpoint.",
            file=checkpoint,
        )
    if vocabulary is not None and description.vocabulary_fingerprint != vocabulary:
        raise UserError(
            f"this checkpoint was trained with vocabulary {description.vocabulary_fingerprint}, but the vocabulary at hand is "
            f"{vocabulary}; use the vocabulary of its run.",
            file=checkpoint,
        )


def _check_complete(state: Mapping[str, Tensor], config: ModelConfig, description: ModelDescription, checkpoint: Path) -> None:
    path = checkpoint / WEIGHTS
    with torch.device("meta"):
        skeleton = PretrainingModel(config, description.vocabulary_size, len(description.languages), seed=None)
    expected = {name: tuple(tensor.shape) for name, tensor in skeleton.state_dict().items()}
    for name, shape in expected.items():
        if name not in state:
            raise UserError(f"tensor '{name}' is missing; use another checkpoint.", file=path)
        if tuple(state[name].shape) != shape:
            raise UserError(
                f"tensor '{name}' has shape {tuple(state[name].shape)}, the model needs {shape}; use another checkpoint.", file=path
            )
    strange = sorted(set(state) - set(expected))
    if strange:
        raise UserError(f"tensor '{strange[0]}' is not part of the model; use another checkpoint.", file=path)
    elements = sum(tensor.numel() for tensor in state.values())
    if elements != description.elements:
        raise UserError(f"holds {elements:,} numbers where {description.elements:,} were written; use another checkpoint.", file=path)
