"""A sweep: the grid over value lists, and for each of its points a run folder that shares all stages before training.

A point's folder holds links to the stages of the base run and a training of its own, so that every script that takes
``--run-dir`` takes a point. A value that an earlier stage depends on cannot be swept: its stage would have to be another.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xlm.config.recipe import AlignedInitialisation, Recipe
from xlm.config.strict import load_config
from xlm.errors import UserError
from xlm.runs.fingerprint import FINGERPRINT_HEX, fingerprint
from xlm.runs.folder import RunFolder
from xlm.runs.stage import SCRIPTS, read_record

# Stages that points share, in the order data flows.
SHARED = ("normalised", "tasks", "corpus", "vocabulary", "shards", "embeddings")
_NAME_CHARACTERS = 100
_OPEN, _CLOSE, _QUOTES = "[{(", "]})", "\"'"


@dataclass(frozen=True)
class Point:
    """One setting of a grid: what is set beside the base recipe, and the recipe that comes out."""

    name: str  # of its folder and its run
    values: Mapping[str, str]  # by the dotted name of the swept key
    overrides: tuple[str, ...]  # all of ``a.b=c``, fixed ones first
    recipe: Recipe

    @property
    def fingerprint(self) -> str:
        """What the point asks for, in a few digits."""
        return fingerprint(self.recipe.model_dump(mode="json"))

    def as_json(self) -> dict[str, Any]:
        """Return what is kept beside a finished training, for the next sweep to know it by."""
        return {"values": dict(self.values), "fingerprint": self.fingerprint}


def split_values(text: str) -> list[str]:
    """Split at commas outside brackets and quotes, ``"[1, 2],3"`` into ``["[1, 2]", "3"]``; UserError for one that does not close."""
    values, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in _QUOTES and not values[-1].strip():  # inside a word it is an apostrophe
            quote = character
        elif character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
        elif character == "," and depth == 0:
            values.append("")
            continue
        values[-1] += character
    if quote or depth != 0:
        raise UserError(f"the values '{text}' have a bracket or a quote that does not close; commas separate values outside of both.")
    values = [value.strip() for value in values]
    if not all(values) or len(set(values)) < len(values):
        raise UserError(f"the values '{text}' are empty somewhere or name one twice; give each once, separated by commas.")
    return values


def make_grid(recipe_path: Path, settings: Sequence[str]) -> tuple[Recipe, list[Point]]:
    """Return the base recipe, with every ``--set`` of one value, and the points that the others span, in order.

    Raises UserError where nothing is swept, a setting is wrong, or a point changes what stages before training made.
    """
    fixed: list[str] = []
    axes: dict[str, list[str]] = {}
    for setting in settings:
        name, separator, text = setting.partition("=")
        values = split_values(text) if separator and text.strip() else []
        if len(values) > 1:
            if name in axes:
                raise UserError(f"--set {name} is given twice; give all its values in one list.")
            axes[name] = values
        else:
            fixed.append(setting)
    base = load_config(Recipe, recipe_path, fixed)
    if not axes:
        raise UserError(
            "nothing is swept: give at least one --set with several values, such as --set training.optimizer.learning_rate=1e-3,2e-3."
        )
    points = []
    for combination in itertools.product(*axes.values()):
        chosen = dict(zip(axes, combination, strict=True))
        overrides = (*fixed, *(f"{name}={value}" for name, value in chosen.items()))
        point = Point(_point_name(chosen), chosen, overrides, load_config(Recipe, recipe_path, overrides))
        _check_shared(base, point)
        points.append(point)
    same = [point.name for point in points if [other.fingerprint for other in points].count(point.fingerprint) > 1]
    if same:
        raise UserError(f"{' and '.join(same[:2])} are the same recipe; write each value once, in one way.")
    return base, points


def _point_name(values: Mapping[str, str]) -> str:
    """Name a point by its values; keys are shortened to their last part where that says which is meant."""
    last = [name.rpartition(".")[2] for name in values]
    shown = [short if last.count(short) == 1 and not short.isdigit() else name for short, name in zip(last, values, strict=True)]
    parts = [f"{name}={value}" for name, value in zip(shown, values.values(), strict=True)]
    name = re.sub(r"[^A-Za-z0-9._=+-]+", "-", "_".join(parts))
    plain = name == "_".join(parts)
    if plain and len(name) <= _NAME_CHARACTERS:
        return name
    # What was left out of the name may be all that tells two points apart.
    return f"{name[: _NAME_CHARACTERS - FINGERPRINT_HEX // 2 - 1].strip('-')}-{fingerprint(dict(values))[: FINGERPRINT_HEX // 2]}"


def earlier_values(recipe: Recipe) -> dict[str, tuple[str, Any]]:
    """Return what stages before training depend on: for each part of the recipe, the folder of the first such stage and the value."""
    found: dict[str, tuple[str, Any]] = {
        "corpora": ("corpus", recipe.corpora.model_dump(mode="json")),
        "tasks": ("tasks", recipe.tasks.model_dump(mode="json") if recipe.tasks else None),
        "vocabulary": ("vocabulary", str(recipe.vocabulary)),
        # In which order rows are drawn and where shards lie does not change them.
        "shards": ("shards", recipe.shards.model_dump(mode="json", exclude={"shuffle_window"})),
        "seed": ("shards", recipe.seed),
    }
    if isinstance(recipe.embeddings, AlignedInitialisation):
        width = {"model.embedding_size": recipe.model.embedding_size, "model.embedding_scale": recipe.model.embedding_scale}
        found["embeddings"] = ("embeddings", {**recipe.embeddings.model_dump(mode="json"), **width})
    return found


def _check_shared(base: Recipe, point: Point) -> None:
    expected = earlier_values(base)
    for name, (stage, value) in earlier_values(point.recipe).items():
        if name not in expected or expected[name][1] != value:
            raise UserError(
                f"point {point.name} would change '{name}', which the stage '{stage}' ({SCRIPTS[stage]}) depends on; the points of a "
                "sweep share all stages before training: sweep other keys, or start such runs one by one with a --run-dir each."
            )


def link_stages(base: RunFolder, point: RunFolder, names: Sequence[str] = SHARED, needed: Sequence[str] = ("vocabulary", "shards")) -> None:
    """Make a point's folder with links to the stages of the base; UserError where one is missing or something else stands there."""
    for name in needed:
        read_record(base.root / name)
    point.root.mkdir(parents=True, exist_ok=True)
    for name in names:
        target, link = base.root / name, point.root / name
        if not target.exists():
            continue
        if link.is_symlink() and link.resolve() == target.resolve():
            continue
        if link.is_symlink():
            link.unlink()
        elif link.exists():
            raise UserError(f"here is a folder where a sweep links the '{name}' of {base.root}; use another --sweep-dir.", file=link)
        link.symlink_to(os.path.relpath(target.resolve(), point.root.resolve()), target_is_directory=True)


def launcher_arguments(text: str) -> list[str]:
    """Split ``--launcher-args`` as a shell does."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UserError(f"--launcher-args '{text}' cannot be split into words ({error}).") from None


def set_options(overrides: Iterable[str]) -> Iterator[str]:
    """Return overrides as options of a command."""
    for override in overrides:
        yield from ("--set", override)
