"""A model of ours as a folder of transformers: configuration, weights, tokenizer, card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from xlm.config.model import ModelConfig
from xlm.errors import UserError
from xlm.interop.config_map import choose_family
from xlm.interop.family import Facts
from xlm.interop.kept_tensors import KeptTensors
from xlm.interop.model_card import CardFacts, model_card
from xlm.interop.normal_form import split_generator, without_embedding_scale
from xlm.interop.their_files import write_their_files
from xlm.interop.tokenizer_export import write_hf_tokenizer
from xlm.interop.weight_map import FRONT_ROWS, export_weights, fitting_extras, stored_names
from xlm.training.weights import LoadedWeights
from xlm.vocab.vocabulary import Vocabulary

CARD = "README.md"


@dataclass(frozen=True)
class ExportedModel:
    """One model of theirs, and where it lies below the output folder."""

    part: str  # "" for a model of its own, "discriminator" and "generator" for ELECTRA's two
    family: str
    architecture: str
    kept: int = 0  # tensors and rows from an imported folder that our model has no place for

    def folder(self, output: Path) -> Path:
        """Return its folder below ``output``."""
        return output / self.part if self.part else output


def export_folder(
    weights: LoadedWeights,
    vocabulary: Vocabulary,
    output: Path,
    *,
    recipe_fingerprint: str,
    family: str | None = None,
    kept: KeptTensors | None = None,
) -> list[ExportedModel]:
    """Write a model into a folder that exists, one with a generator as two folders in it; ``kept`` is what import kept apart.

    Raises UserError for another vocabulary than the weights', and for a model that no family, or not the named one, can hold.
    """
    if weights.vocabulary_fingerprint != vocabulary.fingerprint:
        raise UserError(
            f"the weights were trained with vocabulary {weights.vocabulary_fingerprint}, the vocabulary at hand is "
            f"{vocabulary.fingerprint}; pass the run's own with --vocabulary."
        )
    kept = KeptTensors() if kept is None else kept
    exported = []
    for part, (config, state) in _parts(weights).items():
        model = _export_one(part, config, state, weights, vocabulary, output, recipe_fingerprint, family or kept.family, kept)
        exported.append(model)
    return exported


def _parts(weights: LoadedWeights) -> dict[str, tuple[ModelConfig, dict[str, Tensor]]]:
    """Return the models that transformers can hold; apart first, since either half may read the table as it was before its scale."""
    config, state = weights.config, weights.state_dict
    whole = {"": (config, dict(state))} if config.generator is None else split_generator(config, state)
    return {part: without_embedding_scale(*one) for part, one in whole.items()}


def _export_one(
    part: str,
    config: ModelConfig,
    state: Mapping[str, Tensor],
    weights: LoadedWeights,
    vocabulary: Vocabulary,
    output: Path,
    recipe_fingerprint: str,
    family_name: str | None,
    kept: KeptTensors,
) -> ExportedModel:
    facts = Facts(
        vocabulary_size=vocabulary.size,
        languages=weights.languages,
        pad_id=vocabulary.pad_id,
        unk_id=vocabulary.unk_id,
        bos_id=vocabulary.bos_id,
        eos_id=vocabulary.eos_id,
        mask_id=vocabulary.mask_id,
    )
    family, theirs = choose_family(config, facts, family_name)
    languages = len(weights.languages)
    extras = fitting_extras(family, config, theirs, kept.of(part, family.name), languages)
    tensors = export_weights(family, config, theirs, state, extras, language_count=languages)
    stored = stored_names(family, config, theirs, languages) | {name for name in extras if not name.endswith(FRONT_ROWS)}
    model = ExportedModel(part, family.name, theirs["architectures"][0], len(extras))
    folder = model.folder(output)
    folder.mkdir(parents=True, exist_ok=True)
    write_their_files(folder, theirs, {name: tensors[name] for name in stored})
    write_hf_tokenizer(vocabulary, folder, max_length=config.max_positions, token_types=_types_of_texts(theirs))
    card = CardFacts(weights.languages, vocabulary.fingerprint, recipe_fingerprint, weights.step, model.family, model.architecture, part)
    (folder / CARD).write_text(model_card(weights.config, card), encoding="utf-8")
    return model


def _types_of_texts(theirs: Mapping[str, Any]) -> int:
    """Return how many types the tokenizer tells apart; XLM would read them as pieces."""
    return int(theirs.get("type_vocab_size", 1))
