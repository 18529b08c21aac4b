"""The names of one model on both sides, tensor by tensor: what a family's data says once its configuration is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from xlm.config.model import ModelConfig
from xlm.interop.family import Family, TheirConfig
from xlm.model.pretraining import PretrainingModel

TOKENS = "encoder.embeddings.tokens.weight"
POSITIONS = "encoder.embeddings.positions.weight"
TOKEN_TYPES = "encoder.embeddings.token_types.weight"
OUTPUT_TABLE = "lm_head.weight"
OUTPUT_BIAS = "lm_head.bias"

Shape = tuple[int, ...]


@dataclass(frozen=True)
class TensorRule:
    """One of our tensors and theirs.

    ``theirs`` are laid end to end along rows; ``aliases`` are other names of the same tensor, of which a checkpoint
    needs one. ``held`` is whether our model has it; otherwise theirs is filled by `xlm.interop.weight_map`.
    """

    ours: str
    theirs: tuple[str, ...]
    shape: Shape  # of ours, or of theirs where ours has none
    held: bool = True
    aliases: tuple[str, ...] = ()
    front_rows: int = 0  # rows of theirs before ours
    may_be_absent: bool = False


def our_shapes(config: ModelConfig, vocabulary_size: int, language_count: int) -> dict[str, Shape]:
    """Return the shape of every tensor of a model, without building its values."""
    with torch.device("meta"):
        skeleton = PretrainingModel(config, vocabulary_size, language_count, seed=None)
    return {name: tuple(tensor.shape) for name, tensor in skeleton.state_dict().items()}


def tensor_rules(family: Family, config: ModelConfig, theirs: TheirConfig, vocabulary_size: int, language_count: int) -> list[TensorRule]:
    """Return every tensor that their checkpoint of this model holds, and where it is in ours."""
    shapes = our_shapes(config, vocabulary_size, language_count)
    rules = []
    for ours, parts in _expanded(family, config):
        if ours in shapes:
            front = family.front_rows(theirs) if ours == POSITIONS else 0
            aliases = _token_aliases(family, config) if ours == TOKENS else ()
            rules.append(TensorRule(ours, parts, shapes[ours], aliases=aliases, front_rows=front))
        elif (shape := _missing_shape(ours, family, config, shapes)) is not None:
            rules.append(TensorRule(ours, parts, shape, held=False))
    return [*rules, *_projection_rules(family, config, vocabulary_size)]


def _expanded(family: Family, config: ModelConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield single tensors: layers counted out, modules as their weight and bias."""
    blocks = config.layers if config.layer_groups is None else config.layer_groups
    for ours, theirs in family.names.items():
        parts = (theirs,) if isinstance(theirs, str) else theirs
        for number in range(blocks) if "{n}" in ours else (0,):
            one, several = ours.replace("{n}", str(number)), tuple(part.replace("{n}", str(number)) for part in parts)
            if one.endswith(".weight"):
                yield one, several
                continue
            for suffix in ("weight", "bias"):
                yield f"{one}.{suffix}", tuple(f"{part}.{suffix}" for part in several)


def _missing_shape(ours: str, family: Family, config: ModelConfig, shapes: dict[str, Shape]) -> Shape | None:
    """Return the shape of a tensor that theirs has and ours lacks, None where neither has it."""
    if ours == TOKEN_TYPES:
        return (1, config.embedding_size)
    if ours == POSITIONS and config.positions == "sinusoidal":
        return (config.max_positions, config.embedding_size)
    weight = shapes.get(ours.removesuffix(".bias") + ".weight")
    if ours.endswith(".bias") and weight is not None and not family.optional_biases:
        return weight[:1]
    return None


def _token_aliases(family: Family, config: ModelConfig) -> tuple[str, ...]:
    tied = config.tied_output and config.language_model_head and family.decoder is not None
    return (f"{family.decoder}.weight",) if tied else ()


def _projection_rules(family: Family, config: ModelConfig, vocabulary_size: int) -> list[TensorRule]:
    """Return the vocabulary projection's tensors.

    In transformers 5 a tied projection shares its bias, too, with the head's own; an untied one leaves that idle.
    """
    if not config.language_model_head or family.decoder is None:
        return []
    bias, held = f"{family.decoder}.bias", config.output_bias
    rules = []
    if not config.tied_output:
        rules.append(TensorRule(OUTPUT_TABLE, (f"{family.decoder}.weight",), (vocabulary_size, config.embedding_size)))
    if not held and family.optional_biases:
        return rules
    if family.head_bias is None:
        return [*rules, TensorRule(OUTPUT_BIAS, (bias,), (vocabulary_size,), held)]
    if config.tied_output:
        return [*rules, TensorRule(OUTPUT_BIAS, (family.head_bias,), (vocabulary_size,), held, aliases=(bias,))]
    idle = TensorRule("", (family.head_bias,), (vocabulary_size,), held=False, may_be_absent=True)
    return [*rules, TensorRule(OUTPUT_BIAS, (bias,), (vocabulary_size,), held), idle]
