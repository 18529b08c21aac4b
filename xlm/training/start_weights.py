"""The weights that a run starts from: an imported model or a checkpoint of another run (``start_from`` in the recipe)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from xlm.config.model import ModelConfig
from xlm.config.model_spelling import differing_fields
from xlm.errors import UserError
from xlm.runs.fingerprint import file_sha256, fingerprint
from xlm.training.weights import DESCRIPTION, WEIGHTS, load_model_weights

LANGUAGES = "encoder.embeddings.languages.weight"


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


def start_weights(folder: Path, config: ModelConfig, vocabulary: str, languages: Sequence[str]) -> dict[str, Tensor]:
    """Return a state dict for a model of ``config`` whose language embeddings are those of ``languages``, in this order.

    Raises UserError, with the field, for weights of another model; for another vocabulary; for a language without an
    embedding. Dropout and first values may differ: they are training's, not the weights'.
    """
    loaded = load_model_weights(folder, vocabulary_fingerprint=vocabulary)
    for name in differing_fields(config, loaded.config):
        raise UserError(
            f"start_from is another model: its {name} is {getattr(loaded.config, name)}, the recipe's model.{name} is "
            f"{getattr(config, name)}; take its model section over.",
            file=folder / DESCRIPTION,
        )
    state = loaded.state_dict
    if config.language_embeddings:
        missing = [language for language in languages if language not in loaded.languages]
        if missing:
            raise UserError(
                f"start_from has no language embedding for {', '.join(missing)}; it knows {', '.join(loaded.languages)}. Take other "
                "languages out of the phases, or start from a model without language embeddings.",
                file=folder / DESCRIPTION,
            )
        state[LANGUAGES] = state[LANGUAGES][[loaded.languages.index(language) for language in languages]]
    return state
