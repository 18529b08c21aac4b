"""A transformers folder as a model folder of ours, with its vocabulary, so that pretraining can go on from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import yaml
from safetensors.torch import save_file
from torch import Tensor

from xlm.config.model import ModelConfig
from xlm.config.model_spelling import TRAINING_ONLY
from xlm.errors import UserError
from xlm.interop.config_map import Described, read_config
from xlm.interop.normal_form import joined
from xlm.interop.tensor_map import OUTPUT_BIAS, OUTPUT_TABLE, TOKENS
from xlm.interop.their_files import read_their_config, read_their_weights
from xlm.interop.tokenizer_import import read_hf_vocabulary
from xlm.interop.weight_map import import_weights
from xlm.runs.fingerprint import file_sha256, fingerprint
from xlm.runs.stage import write_json
from xlm.training.weights import ModelDescription, write_model_weights
from xlm.vocab.vocabulary import Vocabulary

EXTRAS = "extras.safetensors"
MODEL_SECTION = "model.yaml"
# One row for each piece of the vocabulary, in the order of its ids.
_PIECE_ROWS = (TOKENS, OUTPUT_TABLE, OUTPUT_BIAS, "generator.lm_head.bias")

State = dict[str, Tensor]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Imported:
    """A model in our form; ``extras`` are their tensors and rows that it has no place for."""

    family: str
    config: ModelConfig
    languages: tuple[str, ...]
    vocabulary: Vocabulary
    state: State
    extras: State
    left_out_rows: int
    remarks: tuple[str, ...]  # what was noticed about the tokenizer
    source: str  # fingerprint of their files

    @property
    def elements(self) -> int:
        """Return the number of parameters."""
        return sum(tensor.numel() for tensor in self.state.values())


def import_folder(folder: Path, *, generator: Path | None = None, allow_extra_rows: bool = False) -> Imported:
    """Read a transformers folder; with ``generator``, an ELECTRA discriminator and the generator that trains it.

    Raises UserError for whatever is missing, damaged or not reproducible, and for rows of the embedding table that
    no piece of the vocabulary names, unless they may be left out.
    """
    described, state, extras = _read_model(folder)
    config = described.config
    if generator is not None:
        other, other_state, _ = _read_model(generator)
        config, state = joined((config, state), (other.config, other_state))
    tokens = read_hf_vocabulary(folder)
    ids = np.asarray(tokens.ids, dtype=np.int64)
    left_out = _left_out_rows(ids, described.facts.vocabulary_size, folder, allowed=allow_extra_rows)
    state = _in_our_order(state, ids)
    return Imported(
        family=described.family.name,
        config=config,
        languages=described.facts.languages,
        vocabulary=tokens.vocabulary,
        state=state,
        extras=extras,
        left_out_rows=left_out,
        remarks=tokens.remarks,
        source=fingerprint({path.name: file_sha256(path) for path in sorted(folder.iterdir()) if path.is_file()}),
    )


def _read_model(folder: Path) -> tuple[Described, State, State]:
    theirs = read_their_config(folder)
    try:
        described = read_config(theirs)
        return described, *import_weights(described, theirs, read_their_weights(folder))
    except UserError as error:
        if str(error).startswith(str(folder)):
            raise
        raise UserError(str(error), file=folder) from None


def _left_out_rows(ids: Ids, rows: int, folder: Path, *, allowed: bool) -> int:
    if len(ids) and int(ids.max()) >= rows:
        raise UserError(
            f"the tokenizer has ids up to {int(ids.max()):,}, but the embedding table has {rows:,} rows; "
            "use the tokenizer that the model was trained with.",
            file=folder,
        )
    extra = np.setdiff1d(np.arange(rows), ids)
    if len(extra) and not allowed:
        raise UserError(
            f"the embedding table has {rows:,} rows, and {len(extra):,} of them (row {int(extra[0]):,} first) belong to no piece of the "
            "vocabulary; pass --allow-extra-rows to leave them out.",
            file=folder,
        )
    return len(extra)


def _in_our_order(state: Mapping[str, Tensor], ids: Ids) -> State:
    """Return a state dict whose rows follow our ids; ``ids`` [pieces] says which of theirs each of ours is."""
    rows = torch.from_numpy(ids)
    return {name: tensor[rows] if name in _PIECE_ROWS else tensor for name, tensor in state.items()}


def write_imported(imported: Imported, folder: Path) -> None:
    """Write weights, vocabulary, extras and the recipe's model section into a folder that exists."""
    (folder / "spm.model").write_bytes(imported.vocabulary.serialized_model)
    _describe_vocabulary(imported.vocabulary, folder)
    description = ModelDescription(
        config=imported.config.model_dump(mode="json"),
        vocabulary_size=imported.vocabulary.size,
        vocabulary_fingerprint=imported.vocabulary.fingerprint,
        languages=imported.languages,
        step=0,
        precision="fp32",
        recipe_fingerprint=imported.source,
    )
    write_model_weights(folder, imported.state, description)
    if imported.extras:
        save_file({name: tensor.contiguous() for name, tensor in imported.extras.items()}, folder / EXTRAS)
    (folder / MODEL_SECTION).write_text(model_section(imported.config), encoding="utf-8")


def _describe_vocabulary(vocabulary: Vocabulary, folder: Path) -> None:
    special = dict(zip(vocabulary.pieces[: len(vocabulary.special_ids)], vocabulary.special_ids, strict=True))
    description = {"size": vocabulary.size, "special_ids": special, "fingerprint": vocabulary.fingerprint, "spec": None}
    write_json(folder / "vocabulary.json", description)


def model_section(config: ModelConfig) -> str:
    """Return the YAML of a recipe's ``model`` section: whatever is not the default."""
    defaults = {name: field.default for name, field in ModelConfig.model_fields.items()}
    values = {name: value for name, value in config.model_dump(mode="json").items() if value != defaults[name]}
    deciding = {name: value for name, value in values.items() if name not in TRAINING_ONLY}
    training = {name: value for name, value in values.items() if name in TRAINING_ONLY}
    return yaml.safe_dump({"model": {**deciding, **training}}, sort_keys=False)
