"""Whether two model sections mean the same model, however each is spelled."""

from __future__ import annotations

from typing import Any

from xlm.config.model import ModelConfig

# What decides first values and training alone, not what a model computes from its weights.
TRAINING_ONLY = frozenset(
    {
        "dropout",
        "attention_dropout",
        "stochastic_depth",
        "initialisation",
        "initializer_range",
        "embedding_initializer_range",
        "residual_initial_scale",
    }
)


def normal_spelling(config: ModelConfig) -> ModelConfig:
    """Return a configuration with null where a written value is what null means, and defaults where a choice has no effect."""
    update: dict[str, Any] = {}
    if config.embedding_width == config.width:
        update["embedding_width"] = None
    if config.attention_dropout == config.dropout:
        update["attention_dropout"] = None
    if config.layer_groups == config.layers:
        update["layer_groups"] = None
    if config.local_rotary_base == config.rotary_base:
        update["local_rotary_base"] = None
    if config.embedding_initializer_range == config.initializer_range:
        update["embedding_initializer_range"] = None
    if config.embedding_norm == (config.norm_position == "post"):
        update["embedding_norm"] = None
    if config.positions != "rotary":
        update["rotary_base"] = ModelConfig.model_fields["rotary_base"].default
    if not config.language_model_head:
        # A generator's own head has a transform and the token table in any case.
        update |= {"head_transform": True, "tied_output": True}
        if not (config.sentence_head or config.discriminator_head or config.generator):
            update["output_bias"] = True
    return config.model_copy(update=update)


def unequal_fields(one: ModelConfig, other: ModelConfig) -> list[str]:
    """Return the fields by which two sections mean different things, those of training included."""
    one, other = normal_spelling(one), normal_spelling(other)
    return [name for name in ModelConfig.model_fields if getattr(one, name) != getattr(other, name)]


def differing_fields(one: ModelConfig, other: ModelConfig) -> list[str]:
    """Return the fields by which two models compute different things from the same weights, or cannot share them."""
    return [name for name in unequal_fields(one, other) if name not in TRAINING_ONLY]
