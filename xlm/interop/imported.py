"""A transformers folder as a model folder of ours, with its vocabulary, so that pretraining can go on from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import yaml
from torch import Tensor

from xlm.config.model import ModelConfig
from xlm.config.model_spelling import TRAINING_ONLY
from xlm.errors import UserError
from xlm.interop.config_map import Described, read_config
from xlm.interop.kept_tensors import GENERATOR, KeptTensors, write_kept
from xlm.interop.normal_form import joined
from xlm.interop.tensor_map import OUTPUT_BIAS, OUTPUT_TABLE, TOKENS
from xlm.interop.their_files import read_their_config, read_their_weights
from xlm.interop.tokenizer_import import read_hf_vocabulary
from xlm.interop.weight_map import import_weights
from xlm.runs.fingerprint import file_sha256, fingerprint
from xlm.training.weights import ModelDescription, write_model_weights
from xlm.vocab.vocabulary import Vocabulary

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


def import_folder(folder: Path, *, generator: Path | None = None, allow_extra_rows: bool = False, round_scores: bool = False) -> Imported:
    """Read a transformers folder; with ``generator``, an ELECTRA discriminator and the generator that trains it.

    Raises UserError for whatever is missing, damaged or not reproducible, and for rows of the embedding table that
    no piece of the vocabulary names, unless they may be left out.
    """
    described, state, extras = _read_model(folder)
    config, source = described.config, _files(folder)
    if generator is not None:
        config, state, others = _with_generator(config, state, folder, generator)
        extras |= {GENERATOR + name: tensor for name, tensor in others.items()}
        source |= {GENERATOR + name: digest for name, digest in _files(generator).items()}
    tokens = read_hf_vocabulary(folder, round_scores=round_scores)
    ids = np.asarray(tokens.ids, dtype=np.int64)
    left_out = _left_out_rows(ids, described.facts.vocabulary_size, folder, allowed=allow_extra_rows)
    state = _in_our_order(state, ids, _PIECE_ROWS)
    extras = _in_our_order(extras, ids, (described.family.head_bias,))  # which an untied projection leaves idle
    return Imported(
        family=described.family.name,
        config=config,
        languages=described.facts.languages,
        vocabulary=tokens.vocabulary,
        state=state,
        extras=extras,
        left_out_rows=left_out,
        remarks=tokens.remarks,
        source=fingerprint(source),
    )


def _files(folder: Path) -> dict[str, str]:
    return {path.name: file_sha256(path) for path in sorted(folder.iterdir()) if path.is_file()}


def _with_generator(config: ModelConfig, state: State, folder: Path, generator: Path) -> tuple[ModelConfig, State, State]:
    """Return a discriminator joined with its generator, and the generator's extras."""
    other, other_state, others = _read_model(generator)
    try:
        config, state = joined((config, state), (other.config, other_state))
    except UserError as error:
        raise UserError(f"cannot be joined with the generator {generator}: {error}", file=folder) from None
    return config, state, others


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


def _in_our_order(state: Mapping[str, Tensor], ids: Ids, names: Collection[str | None]) -> State:
    """Return tensors of which those of ``names`` have rows that follow our ids; ``ids`` [pieces] says which of theirs each of ours is."""
    rows = torch.from_numpy(ids)
    return {name: tensor[rows] if name in names else tensor for name, tensor in state.items()}


def write_imported(imported: Imported, folder: Path) -> None:
    """Write weights, vocabulary, extras and the recipe's model section into a folder that exists."""
    imported.vocabulary.save(folder, None)
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
    write_kept(folder, KeptTensors(imported.family, imported.extras))
    (folder / MODEL_SECTION).write_text(model_section(imported.config), encoding="utf-8")


def model_section(config: ModelConfig) -> str:
    """Return the YAML of a recipe's ``model`` section: whatever is not the default."""
    defaults = {name: field.default for name, field in ModelConfig.model_fields.items()}
    values = {name: value for name, value in config.model_dump(mode="json").items() if value != defaults[name]}
    deciding = {name: value for name, value in values.items() if name not in TRAINING_ONLY}
    training = {name: value for name, value in values.items() if name in TRAINING_ONLY}
    return yaml.safe_dump({"model": {**deciding, **training}}, sort_keys=False)
