"""ELECTRA (Clark et al. 2020): a generator and a discriminator, each a model of its own in transformers."""

from __future__ import annotations

from typing import Any

from xlm.config.model import ModelConfig
from xlm.interop.family import Architecture, Facts, Family, Field, TheirConfig, bert_blocks, bert_embeddings, bert_fields


def _read(theirs: TheirConfig) -> dict[str, Any]:
    return {"embedding_width": theirs.get("embedding_size", 128)}


def _write(config: ModelConfig, _facts: Facts) -> dict[str, Any]:
    return {"embedding_size": config.embedding_size}


FAMILY = Family(
    name="electra",
    architectures=(
        Architecture("ElectraForMaskedLM"),
        Architecture("ElectraForPreTraining", language_model_head=False, discriminator_head=True),
    ),
    fields=(
        Field("hidden_size", "width", 256),
        Field("num_attention_heads", "heads", 4),
        Field("intermediate_size", "feed_forward", 1024),
        *(field for field in bert_fields(type_count=2) if field.ours not in {"width", "heads", "feed_forward"}),
    ),
    always={"norm_position": "post", "positions": "learned"},
    # The generator's head computes the exact GELU whatever the layers do.
    activations=("gelu",),
    names={
        **bert_embeddings("electra.embeddings"),
        "encoder.embedding_projection": "electra.embeddings_project",
        **bert_blocks("electra.encoder.layer"),
        "lm_head.dense": "generator_predictions.dense",
        "lm_head.norm": "generator_predictions.LayerNorm",
        "discriminator_head.dense": "discriminator_predictions.dense",
        "discriminator_head.score": "discriminator_predictions.dense_prediction",
    },
    decoder="generator_lm_head",
    surplus=("electra.embeddings.position_ids", "electra.embeddings.token_type_ids"),
    read_more=_read,
    write_more=_write,
)
