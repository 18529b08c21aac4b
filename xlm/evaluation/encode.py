"""Sentence vectors of a frozen encoder: mean-pooled hidden states, one vector a text and layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np
import torch
from numpy.typing import NDArray

from xlm.evaluation.packing import TokenisedTexts, batches_by_length, pack, tokenise
from xlm.model.encoder import Encoder
from xlm.model.pooling import mean_pool
from xlm.vocab.vocabulary import Vocabulary

FINAL_LAYER = (-1,)
TOKENS_PER_BATCH = 4096

Vectors = NDArray[np.float32]


def encode_texts(
    encoder: Encoder,
    vocabulary: Vocabulary,
    texts: Sequence[str],
    *,
    language: int | None = None,
    layers: Sequence[int] = FINAL_LAYER,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: str = "fp32",
    counts: Counter[str] | None = None,
) -> Vectors:
    """Return mean-pooled vectors [layers, n, width] of n texts, fp32.

    ``layers`` are indices into the encoder's states (0: embeddings, -1: final). ``language`` is the
    index of the texts' language in the model's languages; only a model with language embeddings needs
    it. Texts longer than the model reads are cut and counted in ``counts["cut"]``, of ``counts["texts"]``.
    """
    tokenised = tokenise(vocabulary, texts, encoder.config.max_positions)
    if counts is not None:
        counts["texts"] += len(texts)
        counts["cut"] += tokenised.cut
    return encode_tokenised(encoder, tokenised, language=language, layers=layers, tokens_per_batch=tokens_per_batch, precision=precision)


def encode_tokenised(
    encoder: Encoder,
    tokenised: TokenisedTexts,
    *,
    language: int | None = None,
    layers: Sequence[int] = FINAL_LAYER,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: str = "fp32",
) -> Vectors:
    """Return mean-pooled vectors [layers, n, width] of texts that are ids already."""
    vectors = np.zeros((len(layers), len(tokenised.sequences), encoder.config.width), dtype=np.float32)
    final_only = all(layer in (-1, encoder.config.layers) for layer in layers)
    was_training = encoder.training
    encoder.eval()
    with torch.inference_mode(), autocast(precision):
        for indices in batches_by_length(tokenised.lengths, tokens_per_batch):
            batch = pack([tokenised.sequences[index] for index in indices], language)
            states = encoder(
                batch.input_ids,
                batch.position_ids,
                batch.cu_seqlens,
                language_ids=batch.language_ids,
                return_layers=not final_only,
            )
            for row, layer in enumerate(layers):
                hidden = states if final_only else states[layer]
                vectors[row, indices] = mean_pool(hidden, batch.cu_seqlens).float().numpy()
    encoder.train(was_training)
    return vectors


def autocast(precision: str) -> AbstractContextManager[object]:
    """Return the CPU autocast context of a precision; "fp32" computes as it stands."""
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16")
