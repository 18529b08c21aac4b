"""ALBERT (Lan et al. 2020): factorised embeddings, layers shared within groups, sentence order."""

from __future__ import annotations

from typing import Any

from xlm.config.model import ModelConfig
from xlm.interop.family import ENCODER_ONLY, Architecture, Facts, Family, Field, TheirConfig, bert_embeddings, bert_fields

_LAYER = "albert.encoder.albert_layer_groups.{n}.albert_layers.0"


def _read(theirs: TheirConfig) -> dict[str, Any]:
    return {"layer_groups": theirs.get("num_hidden_groups", 1), "embedding_width": theirs.get("embedding_size", 128)}


def _write(config: ModelConfig, _facts: Facts) -> dict[str, Any]:
    return {"num_hidden_groups": config.layer_groups or config.layers, "embedding_size": config.embedding_size, "inner_group_num": 1}


FAMILY = Family(
    name="albert",
    architectures=(Architecture("AlbertForMaskedLM"), Architecture("AlbertForPreTraining", sentence_head=True)),
    fields=(
        Field("hidden_size", "width", 4096),
        Field("num_attention_heads", "heads", 64),
        Field("intermediate_size", "feed_forward", 16384),
        Field("hidden_dropout_prob", "dropout", 0.0),
        Field("attention_probs_dropout_prob", "attention_dropout", 0.0),
        *(
            field
            for field in bert_fields(type_count=2)
            if field.ours not in {"width", "heads", "feed_forward", "dropout", "attention_dropout"}
        ),
    ),
    always={"norm_position": "post", "positions": "learned"},
    fixed={**ENCODER_ONLY, "inner_group_num": 1},
    default_activation="gelu_new",
    names={
        **bert_embeddings("albert.embeddings"),
        "encoder.embedding_projection": "albert.encoder.embedding_hidden_mapping_in",
        "encoder.blocks.{n}.attention.qkv": (f"{_LAYER}.attention.query", f"{_LAYER}.attention.key", f"{_LAYER}.attention.value"),
        "encoder.blocks.{n}.attention.output": f"{_LAYER}.attention.dense",
        "encoder.blocks.{n}.attention_norm": f"{_LAYER}.attention.LayerNorm",
        "encoder.blocks.{n}.feed_forward.inner": f"{_LAYER}.ffn",
        "encoder.blocks.{n}.feed_forward.output": f"{_LAYER}.ffn_output",
        "encoder.blocks.{n}.feed_forward_norm": f"{_LAYER}.full_layer_layer_norm",
        "lm_head.dense": "predictions.dense",
        "lm_head.norm": "predictions.LayerNorm",
        "sentence_head.pooler": "albert.pooler",
        "sentence_head.classifier": "sop_classifier.classifier",
    },
    decoder="predictions.decoder",
    head_bias="predictions.bias",
    surplus=("albert.embeddings.position_ids", "albert.embeddings.token_type_ids", "albert.pooler.*", "sop_classifier.classifier.*"),
    factorised_embeddings=True,
    read_more=_read,
    write_more=_write,
)
