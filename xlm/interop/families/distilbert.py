"""DistilBERT (Sanh et al. 2019): BERT without token types and pooler."""

from __future__ import annotations

from typing import Any

from xlm.config.model import ModelConfig
from xlm.interop.family import Architecture, Facts, Family, Field, TheirConfig

_LAYER = "distilbert.transformer.layer.{n}"


def _read(theirs: TheirConfig) -> dict[str, Any]:
    return {"positions": "sinusoidal" if theirs.get("sinusoidal_pos_embds", False) else "learned"}


def _write(config: ModelConfig, _facts: Facts) -> dict[str, Any]:
    return {"sinusoidal_pos_embds": config.positions == "sinusoidal"}


FAMILY = Family(
    name="distilbert",
    architectures=(Architecture("DistilBertForMaskedLM"),),
    fields=(
        Field("dim", "width", 768),
        Field("n_layers", "layers", 6),
        Field("n_heads", "heads", 12),
        Field("hidden_dim", "feed_forward", 3072),
        Field("max_position_embeddings", "max_positions", 512),
        Field("dropout", "dropout", 0.1),
        Field("attention_dropout", "attention_dropout", 0.1),
        Field("initializer_range", "initializer_range", 0.02),
    ),
    always={"norm_position": "post", "norm_epsilon": 1e-12},  # the class has no other epsilon
    activation_field="activation",
    names={
        "encoder.embeddings.tokens.weight": "distilbert.embeddings.word_embeddings.weight",
        "encoder.embeddings.positions.weight": "distilbert.embeddings.position_embeddings.weight",
        "encoder.embeddings.norm": "distilbert.embeddings.LayerNorm",
        "encoder.blocks.{n}.attention.qkv": (f"{_LAYER}.attention.q_lin", f"{_LAYER}.attention.k_lin", f"{_LAYER}.attention.v_lin"),
        "encoder.blocks.{n}.attention.output": f"{_LAYER}.attention.out_lin",
        "encoder.blocks.{n}.attention_norm": f"{_LAYER}.sa_layer_norm",
        "encoder.blocks.{n}.feed_forward.inner": f"{_LAYER}.ffn.lin1",
        "encoder.blocks.{n}.feed_forward.output": f"{_LAYER}.ffn.lin2",
        "encoder.blocks.{n}.feed_forward_norm": f"{_LAYER}.output_layer_norm",
        "lm_head.dense": "vocab_transform",
        "lm_head.norm": "vocab_layer_norm",
    },
    decoder="vocab_projector",
    surplus=("distilbert.embeddings.position_ids",),
    read_more=_read,
    write_more=_write,
)
