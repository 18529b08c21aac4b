"""What is known of one model family of transformers: data that the generic code of this room carries out.

A *module* name stands for its ``weight`` and its ``bias``; ``{n}`` is the number of a layer, the same on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from xlm.config.model import ModelConfig

TheirConfig = Mapping[str, Any]

# Spellings of an activation in their configurations; the first of each of ours is what export writes.
ACTIVATIONS: Mapping[str, str] = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_python": "gelu"}
ENCODER_ONLY: Mapping[str, Any] = {
    "is_decoder": False,
    "add_cross_attention": False,
    "is_encoder_decoder": False,
    "position_embedding_type": "absolute",
}
# Special pieces in their configurations, and in `Facts`.
SPECIAL_IDS: Mapping[str, str] = {
    "pad_token_id": "pad_id",
    "bos_token_id": "bos_id",
    "eos_token_id": "eos_id",
    "mask_token_id": "mask_id",
}


@dataclass(frozen=True)
class Field:
    """One value under two names, and what it is where their configuration leaves it out."""

    theirs: str
    ours: str
    default: Any


@dataclass(frozen=True)
class Architecture:
    """One of a family's classes and the heads that it has."""

    name: str
    language_model_head: bool = True
    sentence_head: bool = False
    discriminator_head: bool = False

    @property
    def heads(self) -> dict[str, bool]:
        """Return the heads as fields of `ModelConfig`."""
        return {
            "language_model_head": self.language_model_head,
            "sentence_head": self.sentence_head,
            "discriminator_head": self.discriminator_head,
        }


@dataclass(frozen=True)
class Family:
    """One ``model_type``."""

    name: str
    architectures: tuple[Architecture, ...]
    fields: tuple[Field, ...]
    # Ours to theirs: modules or single tensors. Several of theirs are laid end to end in ours.
    names: Mapping[str, str | tuple[str, ...]]
    decoder: str | None  # their projection onto the vocabulary, which is the token table when tied
    head_bias: str | None = None  # theirs where the projection's bias has another name, too
    always: Mapping[str, Any] = field(default_factory=dict)  # fields of ModelConfig that all models of the family share
    # What their configuration may say, by key; other values compute something that we have no name for.
    fixed: Mapping[str, Any] = field(default_factory=lambda: ENCODER_ONLY)
    activations: tuple[str, ...] = ("gelu", "gelu_tanh")  # of ours
    activation_field: str = "hidden_act"
    default_activation: str = "gelu"
    # Patterns of tensors in their checkpoints that no computation of ours needs.
    surplus: tuple[str, ...] = ()
    # Position 0 is row pad_token_id + 1 of their table (fairseq).
    positions_follow_padding: bool = False
    default_pad: int = 1  # where their configuration leaves pad_token_id out
    factorised_embeddings: bool = False  # whether embeddings have to be narrower than the layers
    special_ids: Mapping[str, str] = field(default_factory=lambda: SPECIAL_IDS)
    # Whether biases exist on their side only where they do on ours; otherwise missing ones are zeros.
    optional_biases: bool = False
    read_more: Callable[[TheirConfig], dict[str, Any]] | None = None
    write_more: Callable[[ModelConfig, Facts], dict[str, Any]] | None = None
    read_languages: Callable[[TheirConfig], tuple[str, ...]] | None = None  # names of the rows of their language embeddings

    def front_rows(self, theirs: TheirConfig) -> int:
        """Return how many rows of their position table come before position 0."""
        return int(theirs.get("pad_token_id", self.default_pad)) + 1 if self.positions_follow_padding else 0


@dataclass(frozen=True)
class Facts:
    """What belongs to a model beside its shape; ids are None where they are not known."""

    vocabulary_size: int
    languages: tuple[str, ...] = ()
    pad_id: int | None = None
    unk_id: int | None = None
    bos_id: int | None = None
    eos_id: int | None = None
    mask_id: int | None = None


def bert_fields(*, type_count: int | None, positions: int = 512, epsilon: float = 1e-12) -> tuple[Field, ...]:
    """Return the fields in BERT's spelling, which most families took over."""
    types = () if type_count is None else (Field("type_vocab_size", "token_types", type_count),)
    return (
        Field("hidden_size", "width", 768),
        Field("num_hidden_layers", "layers", 12),
        Field("num_attention_heads", "heads", 12),
        Field("intermediate_size", "feed_forward", 3072),
        Field("max_position_embeddings", "max_positions", positions),
        Field("hidden_dropout_prob", "dropout", 0.1),
        Field("attention_probs_dropout_prob", "attention_dropout", 0.1),
        Field("layer_norm_eps", "norm_epsilon", epsilon),
        Field("initializer_range", "initializer_range", 0.02),
        *types,
    )


def bert_blocks(prefix: str) -> dict[str, str | tuple[str, ...]]:
    """Return the names of post-norm layers below ``prefix`` (as in ``bert.encoder.layer``)."""
    layer = f"{prefix}.{{n}}"
    return {
        "encoder.blocks.{n}.attention.qkv": (
            f"{layer}.attention.self.query",
            f"{layer}.attention.self.key",
            f"{layer}.attention.self.value",
        ),
        "encoder.blocks.{n}.attention.output": f"{layer}.attention.output.dense",
        "encoder.blocks.{n}.attention_norm": f"{layer}.attention.output.LayerNorm",
        "encoder.blocks.{n}.feed_forward.inner": f"{layer}.intermediate.dense",
        "encoder.blocks.{n}.feed_forward.output": f"{layer}.output.dense",
        "encoder.blocks.{n}.feed_forward_norm": f"{layer}.output.LayerNorm",
    }


def bert_embeddings(prefix: str) -> dict[str, str | tuple[str, ...]]:
    """Return the names of embeddings below ``prefix`` (as in ``bert.embeddings``)."""
    return {
        "encoder.embeddings.tokens.weight": f"{prefix}.word_embeddings.weight",
        "encoder.embeddings.positions.weight": f"{prefix}.position_embeddings.weight",
        "encoder.embeddings.token_types.weight": f"{prefix}.token_type_embeddings.weight",
        "encoder.embeddings.norm": f"{prefix}.LayerNorm",
    }
