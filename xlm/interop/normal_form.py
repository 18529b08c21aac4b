"""A model of ours as one or two that transformers can hold: without an embedding scale, and with its generator apart."""

from __future__ import annotations

from collections.abc import Mapping

import pydantic
import torch
from torch import Tensor

from xlm.config.model import GeneratorSection, ModelConfig
from xlm.config.model_spelling import differing_fields, normal_spelling
from xlm.errors import UserError
from xlm.interop.tensor_map import OUTPUT_TABLE, TOKENS
from xlm.model.generator import generator_config

State = dict[str, Tensor]
Part = tuple[ModelConfig, State]

EMBEDDINGS = "encoder.embeddings."
_GENERATOR_LAYERS, _GENERATOR_HEAD = "generator.layers.", "generator.lm_head."
_HEADS = ("lm_head.", "sentence_head.", "discriminator_head.")


def without_embedding_scale(config: ModelConfig, state: Mapping[str, Tensor]) -> Part:
    """Return the same model with its scale inside the embedding table, and a projection of its own where that was tied.

    Powers of two change no bit of what the model computes.
    """
    state = dict(state)
    if config.embedding_scale == 1.0:
        return config, state
    update: dict[str, object] = {"embedding_scale": 1.0}
    if config.language_model_head and config.tied_output:
        state[OUTPUT_TABLE] = state[TOKENS]
        update["tied_output"] = False
    state[TOKENS] = state[TOKENS] * config.embedding_scale
    return config.model_copy(update=update), state


def split_generator(config: ModelConfig, state: Mapping[str, Tensor]) -> dict[str, Part]:
    """Return the ``discriminator`` and the ``generator`` of a model as models of their own, each with the embeddings."""
    assert config.generator is not None
    discriminator = {name: tensor for name, tensor in state.items() if not name.startswith("generator.")}
    generator = {name: tensor for name, tensor in state.items() if name.startswith(EMBEDDINGS)}
    for name, tensor in state.items():
        if name.startswith(_GENERATOR_LAYERS):
            generator["encoder." + name.removeprefix(_GENERATOR_LAYERS)] = tensor
        elif name.startswith(_GENERATOR_HEAD):
            generator["lm_head." + name.removeprefix(_GENERATOR_HEAD)] = tensor
    own = normal_spelling(generator_config(config, config.generator))
    return {"discriminator": (config.model_copy(update={"generator": None}), discriminator), "generator": (own, generator)}


def joined(discriminator: Part, generator: Part) -> Part:
    """Return one model of a discriminator and the generator that trains it.

    Raises UserError where they do not share their embeddings, or where the generator makes another choice than its sizes.
    """
    config, state = discriminator
    own, generator_state = generator
    section = GeneratorSection(width=own.width, layers=own.layers, heads=own.heads, feed_forward=own.feed_forward)
    if not config.discriminator_head or own.language_model_head is False:
        raise UserError("a discriminator (ElectraForPreTraining) is trained by a generator (ElectraForMaskedLM); pass them in this order.")
    try:
        together = ModelConfig.model_validate({**config.model_dump(), "generator": section.model_dump()})
    except pydantic.ValidationError as error:
        raise UserError(f"the two do not make one model: {error.errors()[0]['msg']}.") from None
    expected = normal_spelling(generator_config(together, section))
    for name in differing_fields(expected, own):
        raise UserError(
            f"the generator's {name} is {getattr(own, name)}, and the discriminator's makes it {getattr(expected, name)}; "
            "only sizes may differ between the two."
        )
    both = dict(state)
    for name, tensor in generator_state.items():
        if name.startswith(EMBEDDINGS):
            if name not in state or not torch.equal(state[name], tensor):
                raise UserError(f"tensor '{name}' of the generator is not the discriminator's; only models that share it can be joined.")
        elif name.startswith(_HEADS):
            both[_GENERATOR_HEAD + name.removeprefix("lm_head.")] = tensor
        else:
            both[_GENERATOR_LAYERS + name.removeprefix("encoder.")] = tensor
    return together, both
