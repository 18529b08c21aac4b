"""Weights both ways, by the rules of `tensor_map`; whatever ours has no place for is kept, so that export gives it back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from xlm.config.model import ModelConfig
from xlm.errors import UserError
from xlm.interop.config_map import Described
from xlm.interop.family import Family, TheirConfig
from xlm.interop.tensor_map import POSITIONS, Shape, TensorRule, tensor_rules
from xlm.model.embeddings import sinusoidal_positions

_FIRST_NUMBER = re.compile(r"(.*?\.)(\d+)(\..*)")
FRONT_ROWS = "#front_rows"  # marks, among the extras, the rows of a table before ours
SINUSOIDAL_TOLERANCE = 1e-5

State = dict[str, Tensor]


def import_weights(described: Described, theirs_config: TheirConfig, theirs: Mapping[str, Tensor]) -> tuple[State, State]:
    """Return our fp32 state dict of their checkpoint, and the extras: tensors and rows that ours has no place for.

    Raises UserError that lists missing, surplus and misshapen tensors, and for NaN or infinite weights.
    """
    facts, family = described.facts, described.family
    theirs = {_modern_name(name): tensor for name, tensor in theirs.items()}
    rules = tensor_rules(family, described.config, theirs_config, facts.vocabulary_size, len(facts.languages))
    present = _present_names(rules, theirs)
    _check_names(family, rules, present, theirs)
    ours: State = {}
    extras: State = {name: _number(theirs[name], name) for name in theirs if name not in _known_names(rules)}
    for rule in rules:
        if not rule.held:
            _keep_unheld(rule, described.config, theirs, present, extras)
            continue
        whole = torch.cat([_finite(theirs[present[name]], present[name]) for name in rule.theirs])
        if rule.front_rows:
            extras[rule.theirs[0] + FRONT_ROWS] = whole[: rule.front_rows].clone()
        ours[rule.ours] = whole[rule.front_rows :].to(torch.float32).clone()
    return ours, extras


def export_weights(
    family: Family,
    config: ModelConfig,
    theirs_config: TheirConfig,
    ours: Mapping[str, Tensor],
    extras: Mapping[str, Tensor] | None = None,
    *,
    language_count: int = 0,
) -> State:
    """Return their state dict of our weights under all its names, tied ones sharing a tensor.

    Parts that our model lacks are zeros, sinusoids where they are positions, or what ``extras`` kept of them.
    """
    extras = {} if extras is None else extras
    theirs: State = {name: tensor for name, tensor in extras.items() if not name.endswith(FRONT_ROWS)}
    for rule in tensor_rules(family, config, theirs_config, int(theirs_config["vocab_size"]), language_count):
        if rule.held:
            parts = ours[rule.ours].chunk(len(rule.theirs))
        else:
            parts = tuple(extras.get(name, part) for name, part in zip(rule.theirs, _filled(rule, config), strict=True))
        for name, part in zip(rule.theirs, parts, strict=True):
            front = extras.get(name + FRONT_ROWS, part.new_zeros(rule.front_rows, *part.shape[1:]))
            theirs[name] = torch.cat([front, part]) if rule.front_rows else part
        theirs |= dict.fromkeys(rule.aliases, theirs[rule.theirs[0]])
    return theirs


def stored_names(family: Family, config: ModelConfig, theirs_config: TheirConfig, language_count: int) -> set[str]:
    """Return the names under which a file holds their tensors: each once, as ``save_pretrained`` does."""
    rules = tensor_rules(family, config, theirs_config, int(theirs_config["vocab_size"]), language_count)
    return {name for rule in rules for name in rule.theirs}


def fitting_extras(
    family: Family, config: ModelConfig, theirs_config: TheirConfig, extras: Mapping[str, Tensor], language_count: int
) -> State:
    """Return the extras as this export has room for them.

    Our padding piece is 0, so that one row of positions comes before ours, where fairseq's 1 makes two: the last of them stays,
    the padding's, and the one before it, which nothing reads, goes.
    """
    rules = tensor_rules(family, config, theirs_config, int(theirs_config["vocab_size"]), language_count)
    front = {name + FRONT_ROWS: rule.front_rows for rule in rules for name in rule.theirs if rule.front_rows}
    return {
        name: tensor[-front[name] :] if name in front else tensor
        for name, tensor in extras.items()
        if name in front or FRONT_ROWS not in name
    }


def _modern_name(name: str) -> str:
    """Return a tensor's name in today's spelling: the first BERT checkpoints call a norm's weights gamma and beta."""
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _known_names(rules: Iterable[TensorRule]) -> set[str]:
    return {name for rule in rules for name in (*rule.theirs, *rule.aliases)}


def _present_names(rules: Sequence[TensorRule], theirs: Mapping[str, Tensor]) -> dict[str, str]:
    """Return, for each expected tensor that the checkpoint has, under which of its names."""
    present = {}
    for rule in rules:
        for name in rule.theirs:
            found = [one for one in (name, *rule.aliases) if one in theirs]
            if found:
                present[name] = found[0]
            for other in found[1:]:
                if not torch.equal(theirs[found[0]], theirs[other]):
                    raise UserError(
                        f"tensors '{found[0]}' and '{other}' differ, though config.json says that they are tied; "
                        "set tie_word_embeddings to false there, if that is what the model is."
                    )
    return present


def _check_names(family: Family, rules: Sequence[TensorRule], present: Mapping[str, str], theirs: Mapping[str, Tensor]) -> None:
    missing = [name for rule in rules if not rule.may_be_absent for name in rule.theirs if name not in present]
    known = _known_names(rules)
    surplus = sorted(name for name in theirs if name not in known and not any(fnmatchcase(name, pattern) for pattern in family.surplus))
    misshapen = [
        f"{present[name]} {tuple(theirs[present[name]].shape)} instead of {shape}"
        for rule in rules
        for name, shape in _their_shapes(rule).items()
        if name in present and tuple(theirs[present[name]].shape) != shape
    ]
    found = {"missing": missing, "surplus": surplus, "misshapen": misshapen}
    wrong = [f"{len(names)} {kind} ({_shown(names)})" for kind, names in found.items() if names]
    if wrong:
        raise UserError(
            f"the tensors of this checkpoint are not those of its config.json ({family.name}): {'; '.join(wrong)}; "
            "use a checkpoint and a configuration of the same model."
        )


def _shown(names: Sequence[str]) -> str:
    """List names; those that differ in one number alone, the layer's, are one entry: ``layer.{0, 1}.output.bias``."""
    numbers: dict[tuple[str, str], list[str]] = {}
    for name in names:
        match = _FIRST_NUMBER.match(name)
        before, number, after = match.groups() if match else (name, "", "")
        numbers.setdefault((before, after), []).append(number)
    return ", ".join(
        f"{before}{'{' + ', '.join(found) + '}' if len(found) > 1 else found[0]}{after}" for (before, after), found in numbers.items()
    )


def _their_shapes(rule: TensorRule) -> dict[str, Shape]:
    rows = rule.shape[0] // len(rule.theirs) + rule.front_rows
    return dict.fromkeys(rule.theirs, (rows, *rule.shape[1:]))


def _finite(tensor: Tensor, name: str) -> Tensor:
    if not tensor.is_floating_point():
        kind = str(tensor.dtype).removeprefix("torch.")
        raise UserError(f"tensor '{name}' holds {kind} numbers; quantised weights cannot be taken over; use the checkpoint before that.")
    return _number(tensor, name)


def _number(tensor: Tensor, name: str) -> Tensor:
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        raise UserError(f"tensor '{name}' holds NaN or infinite values; use another checkpoint.")
    return tensor


def _keep_unheld(rule: TensorRule, config: ModelConfig, theirs: Mapping[str, Tensor], present: Mapping[str, str], extras: State) -> None:
    """Keep a tensor that our model has no place for; raises UserError where it would have changed what the model computes."""
    for name, fill in zip(rule.theirs, _filled(rule, config), strict=True):
        if name not in present:
            continue
        found = theirs[present[name]]
        if rule.ours == POSITIONS and not torch.allclose(found.float(), fill, rtol=0.0, atol=SINUSOIDAL_TOLERANCE):
            raise UserError(
                f"tensor '{name}' is not the table of sinusoids that config.json says it is; set its sinusoidal positions to false "
                "there, so that the table is taken over as learned."
            )
        extras[name] = _number(found, present[name])


def _filled(rule: TensorRule, config: ModelConfig) -> tuple[Tensor, ...]:
    """Return what stands for a tensor that our model lacks."""
    if rule.ours == POSITIONS:
        return (sinusoidal_positions(config.max_positions, config.embedding_size),)
    return torch.zeros(rule.shape).chunk(len(rule.theirs))
