"""The weights that a run starts from: an imported model or a checkpoint of another run (``start_from`` in the recipe)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from xlm.config.model import ModelConfig
from xlm.config.model_spelling import differing_fields
from xlm.errors import UserError
from xlm.model.initialisation import initialise_parameters
from xlm.model.pretraining import PretrainingModel
from xlm.runs.fingerprint import file_sha256, fingerprint
from xlm.training.weights import DESCRIPTION, WEIGHTS, load_model_weights

LANGUAGES = "encoder.embeddings.languages.weight"
# Heads by their name in the model section, and how the names of their tensors begin.
HEADS = {
    "language_model_head": "lm_head.",
    "sentence_head": "sentence_head.",
    "discriminator_head": "discriminator_head.",
    "generator": "generator.",
}


@dataclass(frozen=True)
class StartWeights:
    """What a model takes from a folder, and which of its heads it does not find there."""

    state: dict[str, Tensor]
    new: tuple[str, ...]  # heads that are drawn
    left_out: Mapping[str, int]  # heads that the model lacks, and how many tensors they had

    def sentence(self) -> str | None:
        """Say for people which heads were left out and which are new; None where all are the same."""
        parts = [f"{head} ({tensors} tensors) is left out, the recipe's model has none" for head, tensors in self.left_out.items()]
        parts += [f"{head} is new, drawn by the seed" for head in self.new]
        return f"start_from: {'; '.join(parts)}." if parts else None


def start_fingerprint(folder: Path) -> str:
    """Hash the weights of a model folder and what they are of; raises UserError for a folder without them."""
    for name in (DESCRIPTION, WEIGHTS):
        if not (folder / name).is_file():
            raise UserError(
                f"start_from needs a folder with {WEIGHTS} and {DESCRIPTION}: a checkpoint, such as "
                "train/checkpoints/step-00000100, or what pipelines/import_hf.py wrote.",
                file=folder,
            )
    return fingerprint({name: file_sha256(folder / name) for name in (DESCRIPTION, WEIGHTS)})


def start_weights(folder: Path, config: ModelConfig, vocabulary: str, languages: Sequence[str]) -> StartWeights:
    """Return what a model of ``config`` takes from a folder; language embeddings are those of ``languages``, in this order.

    Heads may differ: those that ``config`` does not have are left out, those that the folder does not have are named as new. Raises
    UserError, with the field, for weights of another encoder or of another form of a head; for another vocabulary; for a
    language without an embedding. Dropout and first values may differ: they are training's, not the weights'.
    """
    loaded = load_model_weights(folder, vocabulary_fingerprint=vocabulary)
    missing = tuple(head for head in HEADS if getattr(config, head) and not getattr(loaded.config, head))
    surplus = tuple(head for head in HEADS if getattr(loaded.config, head) and not getattr(config, head))
    apart = missing + surplus
    for name in differing_fields(_without(config, apart), _without(loaded.config, apart)):
        if name == "max_positions" and config.positions != "learned":
            continue  # there is no table of them
        raise UserError(
            f"start_from is another model: its {name} is {getattr(loaded.config, name)}, the recipe's model.{name} is "
            f"{getattr(config, name)}; take its model section over (heads may be added and left out).",
            file=folder / DESCRIPTION,
        )
    left_out = {head: {name for name in loaded.state_dict if name.startswith(HEADS[head])} for head in surplus}
    state = {name: tensor for name, tensor in loaded.state_dict.items() if not any(name in names for names in left_out.values())}
    if config.language_embeddings:
        state[LANGUAGES] = _of_languages(state[LANGUAGES], loaded.languages, languages, folder)
    return StartWeights(state, missing, {head: len(names) for head, names in left_out.items()})


def load_start(model: PretrainingModel, start: StartWeights, seed: int) -> None:
    """Give a model the weights to start from; heads that they lack get the values that ``seed`` gives a new model's."""
    for head in start.new:
        prefix = HEADS[head]
        initialise_parameters(model.get_submodule(prefix.rstrip(".")), model.config, seed, prefix=prefix)
    drawn = {name: tensor for name, tensor in model.state_dict().items() if name.startswith(tuple(HEADS[head] for head in start.new))}
    model.load_state_dict({**drawn, **start.state})


def _without(config: ModelConfig, heads: Collection[str]) -> ModelConfig:
    """Return a configuration that lacks some heads, for comparing what is left."""
    update: dict[str, Any] = {head: None if head == "generator" else False for head in heads}
    if "language_model_head" in heads and config.final_norm == "head":
        update["final_norm"] = "none"  # that norm is the head's; the encoder has none
    return config.model_copy(update=update)


def _of_languages(table: Tensor, known: Sequence[str], languages: Sequence[str], folder: Path) -> Tensor:
    missing = [language for language in languages if language not in known]
    if missing:
        raise UserError(
            f"start_from has no language embedding for {', '.join(missing)}; it knows {', '.join(known)}. Take other "
            "languages out of the phases, or start from a model without language embeddings.",
            file=folder / DESCRIPTION,
        )
    return table[[known.index(language) for language in languages]]
