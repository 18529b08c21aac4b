"""Read a YAML file into a frozen pydantic model; every mistake is one sentence with file and line."""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, Union

import pydantic
import yaml

from xlm.errors import UserError, suggest

Model = TypeVar("Model", bound="StrictModel")
Location = tuple[str | int, ...]


class StrictModel(pydantic.BaseModel):
    """Base of all configuration: unknown keys are errors and values never change after loading."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


def load_config(model: type[Model], path: Path | str, overrides: Sequence[str] = ()) -> Model:
    """Read ``path`` as YAML, apply ``a.b=c`` overrides, and validate it as ``model``.

    Raises UserError (with file, line and a suggestion) for a missing file, broken YAML, an unknown
    key, a missing key or a value that is not allowed.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError("this file does not exist; check the path, it is relative to the working folder.", file=path) from None
    except UnicodeDecodeError as error:
        raise UserError(f"not valid UTF-8 at byte {error.start}; save the file as UTF-8.", file=path) from None
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror}).", file=path) from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "cannot be parsed"
        raise UserError(f"not valid YAML ({problem}).", file=path, line=mark.line + 1 if mark else None) from None
    except ValueError as error:  # something that looks like a date and is none
        raise UserError(f"not valid YAML ({error}); put the value in quotes.", file=path) from None
    if not isinstance(data, dict):
        raise UserError("a mapping of keys to values is expected at the top of this file.", file=path)
    lines = _line_numbers(node)
    duplicate = _duplicate_key(node)
    if duplicate is not None:
        raise UserError(f"key '{duplicate[0]}' is given twice; keep one.", file=path, line=duplicate[1])
    for override in overrides:
        apply_override(data, override)
    try:
        return model.model_validate(data)
    except pydantic.ValidationError as error:
        raise _as_user_error(error, model, path, lines, data) from None


def apply_override(data: dict[str, Any], override: str) -> None:
    """Apply one ``--set a.b=c`` to nested ``data`` in place; list items are addressed by their index."""
    name, separator, text = override.partition("=")
    if not separator or not name:
        raise UserError(f"--set '{override}' is not of the form a.b=value.")
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        raise UserError(f"--set '{override}': the value is not valid YAML.") from None
    here: Any = data
    parts = name.split(".")
    for depth, part in enumerate(parts):
        last = depth == len(parts) - 1
        if isinstance(here, list):
            if not part.isdigit() or int(part) >= len(here):
                raise UserError(f"--set '{override}': '{part}' is not an index below {len(here)}.")
            key: Any = int(part)
        elif isinstance(here, dict):
            key = part
            if not last and not isinstance(here.get(key), dict | list):
                here[key] = {}
        else:
            raise UserError(f"--set '{override}': '{'.'.join(parts[:depth])}' holds a single value, not keys.")
        if last:
            here[key] = value
        else:
            here = here[key]


def _line_numbers(node: yaml.Node | None) -> dict[Location, int]:
    lines: dict[Location, int] = {}

    def walk(current: yaml.Node | None, location: Location) -> None:
        if isinstance(current, yaml.MappingNode):
            for key, value in current.value:
                child = (*location, str(key.value))
                lines[child] = key.start_mark.line + 1
                walk(value, child)
        elif isinstance(current, yaml.SequenceNode):
            for index, value in enumerate(current.value):
                lines[(*location, index)] = value.start_mark.line + 1
                walk(value, (*location, index))

    walk(node, ())
    return lines


def _duplicate_key(node: yaml.Node | None) -> tuple[str, int] | None:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                return str(key.value), key.start_mark.line + 1
            seen.add(key.value)
            found = _duplicate_key(value)
            if found:
                return found
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            found = _duplicate_key(value)
            if found:
                return found
    return None


def _as_user_error(
    error: pydantic.ValidationError, model: type[StrictModel], path: Path, lines: dict[Location, int], data: dict[str, Any]
) -> UserError:
    # pydantic reports every problem; the unknown keys explain the missing ones, so they come first.
    problems = sorted(_told_once(error.errors()), key=lambda problem: problem["type"] != "extra_forbidden")
    problem = problems[0]
    location: Location = tuple(problem["loc"])
    written = _as_written(location, data)
    shown = written
    while shown and shown not in lines:
        shown = shown[:-1]
    line = lines.get(shown)
    dotted = ".".join(str(part) for part in written)
    others = len(problems) - 1
    more = f" ({others} more problem{'s' if others > 1 else ''} in this file.)" if others else ""
    if problem["type"] == "extra_forbidden":
        allowed = _fields_at(model, location[:-1])
        hint = suggest(str(location[-1]), allowed) or (f"; allowed here: {', '.join(sorted(allowed))}" if allowed else "")
        return UserError(f"unknown key '{dotted}'{hint}.{more}", file=path, line=line)
    if problem["type"] == "missing":
        return UserError(f"key '{dotted}' is missing; add it.{more}", file=path, line=line)
    if problem["type"] == "string_type" and isinstance(problem.get("input"), bool):
        return UserError(
            f"'{dotted}': YAML reads this word as {problem['input']}; write it in quotes (\"no\" is Norwegian).{more}", file=path, line=line
        )
    message = str(problem["msg"]).removeprefix("Value error, ").rstrip(".")
    if problem["type"] in ("model_type", "model_attributes_type", "dict_type"):
        message = "keys with values are expected here"
    shown_value = repr(problem.get("input"))
    if len(shown_value) > 80 or problem["type"] == "value_error":
        shown_value = ""
    found = f" (found {shown_value})" if shown_value else ""
    prefix = f"'{dotted}': " if dotted else ""
    return UserError(f"{prefix}{message}{found}.{more}", file=path, line=line)


def _told_once(problems: Sequence[Any]) -> list[Any]:
    """Leave out that a list is too short where that is so only because what it holds is wrong."""
    locations = [tuple(problem["loc"]) for problem in problems]

    def follows(problem: Any) -> bool:  # noqa: ANN401 (pydantic's details of an error)
        own = tuple(problem["loc"])
        return problem["type"] == "too_short" and any(other != own and other[: len(own)] == own for other in locations)

    return [problem for problem in problems if not follows(problem)]


def _as_written(location: Location, data: object) -> Location:
    """Return a location without the union tags that pydantic puts into it and nobody wrote in the file."""
    written: list[str | int] = []
    here: Any = data
    for depth, part in enumerate(location):
        inside = (isinstance(here, dict) and part in here) or (isinstance(here, list) and isinstance(part, int) and part < len(here))
        if inside:
            here = here[part]
        # The last part may be a key that is missing; below a plain value it can only be a tag.
        if inside or (depth == len(location) - 1 and isinstance(here, dict | list)):
            written.append(part)
    return tuple(written)


def _fields_at(model: type[StrictModel], location: Location) -> list[str]:
    """Return the field names allowed at a location, following nested models, lists and tagged unions."""
    candidates: list[type[StrictModel]] = [model]
    for part in location:
        following: list[type[StrictModel]] = []
        for candidate in candidates:
            field = candidate.model_fields.get(str(part))
            if field is not None:
                following.extend(_models_in(field.annotation))
        # A list index or a union tag adds a location part without descending into a field.
        candidates = following or _tagged(candidates, part) or candidates
    return sorted({name for candidate in candidates for name in candidate.model_fields})


def _tagged(candidates: Sequence[type[StrictModel]], tag: str | int) -> list[type[StrictModel]]:
    """Return the models of a tagged union that this tag stands for: those whose ``kind`` may be ``tag``."""
    kinds: list[tuple[type[StrictModel], Any]] = [
        (model, model.model_fields["kind"].annotation) for model in candidates if "kind" in model.model_fields
    ]
    return [model for model, kind in kinds if tag in typing.get_args(kind)]


def _models_in(annotation: object) -> list[type[StrictModel]]:
    if isinstance(annotation, type) and issubclass(annotation, StrictModel):
        return [annotation]
    origin = typing.get_origin(annotation)
    if origin in (Union, types.UnionType) or origin is not None:
        return [found for argument in typing.get_args(annotation) for found in _models_in(argument)]
    return []
