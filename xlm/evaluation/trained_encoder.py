"""The encoder under test, and its twin with random weights.

Everything after training reads a checkpoint through `load_model_weights` and nothing else, so that a
score belongs to weights that one process can hold and anybody can load.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from xlm.config.model import ModelConfig
from xlm.config.recipe import Recipe
from xlm.errors import UserError
from xlm.evaluation.encode import encode_texts
from xlm.model.encoder import Encoder
from xlm.model.pretraining import PretrainingModel
from xlm.runs.folder import RunFolder
from xlm.runs.stage import read_record
from xlm.training.checkpoint import checkpoint_step, latest_checkpoint, load_model_weights
from xlm.training.precision import Precision, evaluation_precision
from xlm.vocab.vocabulary import Vocabulary


@dataclass(frozen=True)
class TrainedEncoder:
    """A pretrained encoder with what is needed to feed it; ``languages`` index its language embeddings."""

    encoder: Encoder
    vocabulary: Vocabulary
    config: ModelConfig
    languages: tuple[str, ...]
    step: int
    checkpoint: Path
    precision: Precision

    def encode(
        self,
        texts: Sequence[str],
        language: str,
        layers: Sequence[int],
        *,
        encoder: Encoder | None = None,
        counts: Counter[str] | None = None,
    ) -> NDArray[np.float32]:
        """Encode texts as [layers, n, width] with this encoder, or with a twin of it, fed in the same way."""
        return encode_texts(
            self.encoder if encoder is None else encoder,
            self.vocabulary,
            texts,
            language=self.language_id(language),
            layers=layers,
            precision=self.precision,
            counts=counts,
        )

    def language_id(self, language: str) -> int | None:
        """Return the index of a language's embedding, None for a model without them.

        Raises UserError for a language that the model has no embedding for: another one's would do
        silent harm (XLM's scores fell when ids were forgotten).
        """
        if not self.config.language_embeddings:
            return None
        if language not in self.languages:
            raise UserError(
                f"the model has no language embedding for '{language}'; it knows {', '.join(self.languages)}. "
                "Take it out of tasks.languages."
            )
        return self.languages.index(language)


def load_trained_encoder(recipe: Recipe, run: RunFolder) -> TrainedEncoder:
    """Load the checkpoint of the run's last step, to be used in the precision it was trained in (see `evaluation_precision`).

    Raises UserError where training has not finished, where the newest whole checkpoint is of an earlier
    step, whose scores would pass for those of the finished run, and where it does not fit the recipe.
    """
    vocabulary = Vocabulary.load(run.vocabulary)
    checkpoint = latest_checkpoint(run.train)
    if checkpoint is None:
        raise UserError("there is no complete checkpoint here; run pipelines/pretrain.py first.", file=run.train)
    steps, found = read_record(run.train).summary.get("steps"), checkpoint_step(checkpoint)
    if found != steps:
        raise UserError(
            f"training finished at step {steps}, but the newest whole checkpoint is of step {found}; "
            "run pipelines/pretrain.py again, which goes on from there.",
            file=run.train,
        )
    weights = load_model_weights(checkpoint, expect=recipe.model, vocabulary_fingerprint=vocabulary.fingerprint)
    precision = evaluation_precision(weights.precision, torch.device("cpu"))
    encoder = weights.build().encoder
    return TrainedEncoder(encoder, vocabulary, weights.config, weights.languages, weights.step, checkpoint, precision)


def random_twin(trained: TrainedEncoder, seed: int) -> Encoder:
    """Return the same encoder with the weights of its published initialisation, drawn by ``seed``."""
    return PretrainingModel(trained.config, trained.vocabulary.size, len(trained.languages), seed=seed).encoder.eval()
