"""Configurations both ways: their ``config.json`` and our `ModelConfig`.

Export is checked by reading back what it wrote: the first field that would come back as another one is what the
family cannot hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pydantic

from xlm.config.model import ModelConfig
from xlm.config.model_spelling import differing_fields, normal_spelling
from xlm.errors import UserError
from xlm.interop.families import FAMILIES, family_named
from xlm.interop.families.xlm import languages_of
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
        raise UserError(f"config.json describes a model that does not hold together: {error.errors()[0]['msg']}.") from None
    if family.name == "albert" and config.embedding_size == config.width:
        raise UserError("config.json says embedding_size equal to hidden_size; ALBERT models with a smaller one can be taken over.")
    return Described(family, architecture, normal_spelling(config), _facts(theirs, config))


def _architecture_of(family: Family, theirs: TheirConfig) -> Architecture:
    named = list(theirs.get("architectures") or [family.architectures[0].name])
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


def _facts(theirs: TheirConfig, config: ModelConfig) -> Facts:
    size = theirs.get("vocab_size", theirs.get("n_words"))
    if not isinstance(size, int) or size < 1:
        raise UserError(f"config.json says vocab_size {size}; a whole number of pieces is needed.")
    eos: Any = theirs.get("eos_token_id")
    return Facts(
        vocabulary_size=size,
        languages=languages_of(theirs) if config.language_embeddings else (),
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
    if family.name == "albert" and config.embedding_size == config.width:
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
        **{name: value for name, value in _special_ids(family, facts).items() if value is not None},
    }
    for field in family.fields:
        values[field.theirs] = _value_of(config, field.ours)
    if family.activation_field:
        values[family.activation_field] = spelled.get(config.activation, "gelu")
    if "type_vocab_size" in values:
        values["type_vocab_size"] = max(config.token_types, 1)
    values["max_position_embeddings"] += family.front_rows(values)
    values |= {} if family.write_more is None else family.write_more(config)
    if family.name == "xlm":
        values |= _xlm_facts(facts, config)
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


def _special_ids(family: Family, facts: Facts) -> dict[str, int | None]:
    ids = {
        "pad_token_id": facts.pad_id,
        "bos_token_id": facts.bos_id,
        "eos_token_id": facts.eos_id,
        "mask_token_id": facts.mask_id,
    }
    if family.name == "modernbert":
        ids |= {"cls_token_id": facts.bos_id, "sep_token_id": facts.eos_id}
    if family.name == "xlm":
        ids |= {"unk_index": facts.unk_id, "mask_index": facts.mask_id}
    return ids


def _xlm_facts(facts: Facts, config: ModelConfig) -> dict[str, Any]:
    if not config.language_embeddings:
        return {"n_langs": 1}
    if len(facts.languages) < 2:
        raise UserError("XLM in transformers has language embeddings only for two languages or more; this model has one.")
    numbers = {language: number for number, language in enumerate(facts.languages)}
    return {
        "n_langs": len(facts.languages),
        "lang2id": numbers,
        "id2lang": {str(number): language for language, number in numbers.items()},
    }


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
