"""Configurations both ways: their ``config.json`` and our `ModelConfig`.

Export is checked by reading back what it wrote: the first field that would come back as another one is what the
family cannot hold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pydantic

from xlm.config.model import ModelConfig
from xlm.config.model_spelling import differing_fields, normal_spelling
from xlm.errors import UserError
from xlm.interop.families import FAMILIES, family_named
from xlm.interop.family import ACTIVATIONS, ENCODER_ONLY, Architecture, Facts, Family, TheirConfig

_CANNOT, _REMEDY = " cannot hold this model: ", "; pass another --family."
# Parts that a model may lack where the family has them: written as zeros, which change nothing.
_ZERO_PARTS: Mapping[str, tuple[Any, Any]] = {"token_types": (0, 1), "biases": (False, True), "output_bias": (False, True)}


@dataclass(frozen=True)
class Described:
    """A model of theirs in our terms."""

    family: Family
    architecture: Architecture
    config: ModelConfig
    facts: Facts


def read_config(theirs: TheirConfig) -> Described:
    """Return what their configuration describes; raises UserError for a family, a class or a value that we cannot reproduce."""
    family = family_named(str(theirs.get("model_type", "")))
    _check_values(family, theirs)
    try:
        return _described(family, theirs)
    except (TypeError, AttributeError, ValueError, LookupError, ArithmeticError) as error:
        raise UserError(
            f"config.json holds a value of another kind than {family.name} configurations do ({error}); compare it with one that "
            "transformers wrote."
        ) from None


def _check_values(family: Family, theirs: TheirConfig) -> None:
    """Refuse numbers that are none; ``null`` is only what a field is by default."""
    for field in family.fields:
        found = theirs.get(field.theirs, field.default)
        whole = isinstance(field.default, int)
        if isinstance(found, bool) or not isinstance(found, int if whole else (int, float)):
            needed = "a whole number" if whole else "a number"
            raise UserError(f"config.json says {field.theirs} {json.dumps(found)}; {needed} is needed, such as {field.default}.")
    if family.positions_follow_padding and not isinstance(theirs.get("pad_token_id", family.default_pad), int):
        raise UserError(
            f"config.json says pad_token_id {json.dumps(theirs['pad_token_id'])}; {family.name} numbers positions from it, so a whole "
            f"number is needed ({family.default_pad} in published models)."
        )


def _described(family: Family, theirs: TheirConfig) -> Described:
    architecture = _architecture_of(family, theirs)
    for name, allowed in family.fixed.items():
        if theirs.get(name, allowed) != allowed:
            raise UserError(f"config.json says {name} {theirs[name]}; {family.name} models with {name} {allowed} can be taken over.")
    values: dict[str, Any] = {field.ours: theirs.get(field.theirs, field.default) for field in family.fields}
    values |= {**family.always, "activation": _read_activation(family, theirs), "tied_output": theirs.get("tie_word_embeddings", True)}
    values["max_positions"] -= family.front_rows(theirs)
    values |= {} if family.read_more is None else family.read_more(theirs)
    values |= architecture.heads
    try:
        config = ModelConfig.model_validate(values)
    except pydantic.ValidationError as error:
        raise UserError(f"config.json describes a model that does not hold together: {_explained(error, family)}.") from None
    if family.factorised_embeddings and config.embedding_size == config.width:
        raise UserError(f"config.json says embedding_size equal to hidden_size; {family.name} models with a smaller one can be taken over.")
    return Described(family, architecture, normal_spelling(config), _facts(family, theirs, config))


def _explained(error: pydantic.ValidationError, family: Family) -> str:
    """Return the first thing that is wrong, with its field as they call it."""
    first = error.errors()[0]
    theirs = {"tied_output": "tie_word_embeddings"} | {field.ours: field.theirs for field in family.fields}
    where = ".".join(theirs.get(str(part), str(part)) for part in first["loc"])
    return f"{where} {first.get('input')}: {first['msg']}" if where else first["msg"]


def _architecture_of(family: Family, theirs: TheirConfig) -> Architecture:
    said = theirs.get("architectures") or [family.architectures[0].name]
    named = [str(name) for name in (said if isinstance(said, list) else [said])]
    for architecture in family.architectures:
        if architecture.name in named:
            return architecture
    allowed = ", ".join(architecture.name for architecture in family.architectures)
    raise UserError(f"config.json says architectures {', '.join(named)}; of {family.name}, {allowed} can be taken over.")


def _read_activation(family: Family, theirs: TheirConfig) -> str:
    if not family.activation_field:
        return family.activations[0]
    found = str(theirs.get(family.activation_field, family.default_activation))
    gated = family.activations == ("geglu",)
    ours = "geglu" if gated and found == "gelu" else ACTIVATIONS.get(found)
    if ours in family.activations:
        return ours
    allowed = ["gelu"] if gated else [name for name, activation in ACTIVATIONS.items() if activation in family.activations]
    raise UserError(
        f"config.json says {family.activation_field} {found}; of {family.name}, models with {' or '.join(allowed)} can be taken over."
    )


def _facts(family: Family, theirs: TheirConfig, config: ModelConfig) -> Facts:
    size = theirs.get("vocab_size", theirs.get("n_words"))
    if not isinstance(size, int) or size < 1:
        raise UserError(f"config.json says vocab_size {size}; a whole number of pieces is needed.")
    eos: Any = theirs.get("eos_token_id")
    return Facts(
        vocabulary_size=size,
        languages=family.read_languages(theirs) if config.language_embeddings and family.read_languages else (),
        pad_id=theirs.get("pad_token_id"),
        bos_id=theirs.get("bos_token_id"),
        eos_id=eos[0] if isinstance(eos, list) else eos,
        mask_id=theirs.get("mask_token_id"),
    )


def write_config(family: Family, config: ModelConfig, facts: Facts) -> dict[str, Any]:
    """Return their configuration of a model; raises UserError, with the field, for one that does not fit the family."""
    if config.generator is not None:
        raise UserError("a model with a generator is two models in transformers; export each half.")
    if config.activation not in family.activations:
        raise UserError(_misfit(family, "activation", config.activation, " or ".join(family.activations)))
    if family.factorised_embeddings and config.embedding_size == config.width:
        raise UserError(_misfit(family, "embedding_width", config.embedding_size, "smaller than its width"))
    architecture = next((one for one in family.architectures if _same_heads(one, config)), family.architectures[0])
    spelled = {ours: theirs for theirs, ours in reversed(list(ACTIVATIONS.items()))}
    values = {
        "model_type": family.name,
        "architectures": [architecture.name],
        "vocab_size": facts.vocabulary_size,
        "tie_word_embeddings": config.tied_output,
        "dtype": "float32",
        **{name: value for name, value in family.fixed.items() if name not in ENCODER_ONLY},
        **{name: value for name, ours in family.special_ids.items() if (value := getattr(facts, ours)) is not None},
    }
    for field in family.fields:
        values[field.theirs] = _value_of(config, field.ours)
    if family.activation_field:
        values[family.activation_field] = spelled.get(config.activation, "gelu")
    if "type_vocab_size" in values:
        values["type_vocab_size"] = max(config.token_types, 1)
    values["max_position_embeddings"] += family.front_rows(values)
    values |= {} if family.write_more is None else family.write_more(config, facts)
    _check_reads_back(family, config, values)
    return values


def _same_heads(architecture: Architecture, config: ModelConfig) -> bool:
    return all(getattr(config, name) == value for name, value in architecture.heads.items())


def _value_of(config: ModelConfig, name: str) -> Any:  # noqa: ANN401 (JSON)
    if name == "attention_dropout" and config.attention_dropout is None:
        return config.dropout
    if name == "embedding_initializer_range" and config.embedding_initializer_range is None:
        return config.initializer_range
    return getattr(config, name)


def _check_reads_back(family: Family, config: ModelConfig, values: Mapping[str, Any]) -> None:
    back = read_config(values).config
    for name in differing_fields(config, back):
        before, after = getattr(config, name), getattr(back, name)
        if _ZERO_PARTS.get(name) == (before, after):
            continue
        # The norm that a pre-norm model's head begins with may just as well end the encoder, if nobody else reads its states.
        if (name, before, after) == ("final_norm", "head", "encoder") and not config.sentence_head:
            continue
        raise UserError(_misfit(family, name, before, str(after)))


def _misfit(family: Family, name: str, found: object, allowed: str) -> str:
    return f"{family.name}{_CANNOT}its {name} is {found}, and the family's is {allowed}{_REMEDY}"


def choose_family(config: ModelConfig, facts: Facts, name: str | None = None) -> tuple[Family, dict[str, Any]]:
    """Return the named family, or the first that can hold a model, and its configuration; UserError where none can."""
    if name is not None:
        family = family_named(name)
        return family, write_config(family, config, facts)
    reasons = []
    for family in FAMILIES.values():
        try:
            return family, write_config(family, config, facts)
        except UserError as reason:
            reasons.append(f"{family.name}: {str(reason).removeprefix(f'{family.name}{_CANNOT}').removesuffix(_REMEDY)}")
    raise UserError("no family of transformers can hold this model: " + "; ".join(reasons) + ".")
