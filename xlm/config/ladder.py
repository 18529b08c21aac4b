"""A ladder: what each part of a recipe adds, rung by rung, at equal tokens and with several pretraining seeds (YAML)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from xlm.config.recipe import Recipe
from xlm.config.strict import StrictModel, load_config
from xlm.errors import UserError


def _not_a_folder_of_all(name: str) -> str:
    if name in ("shared", "results"):
        raise ValueError(f"'{name}' is the name of a folder beside those of the runs; use another")
    return name


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$"), AfterValidator(_not_a_folder_of_all)]


class Rung(StrictModel):
    """One version of the recipe; ``set`` holds overrides as ``--set`` takes them."""

    name: Name
    title: Annotated[str, Field(min_length=1)]
    set: tuple[str, ...] = ()


class Beside(StrictModel):
    """One run of another recipe, shown beside the ladder: more tokens, say."""

    name: Name
    title: Annotated[str, Field(min_length=1)]
    recipe: Path


class Ladder(StrictModel):
    """``recipe`` once for each rung and seed of pretraining; each rung is compared with the one before."""

    recipe: Path
    # Two at least: intervals are about another pretraining.
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=2)] = (1, 2, 3)
    rungs: Annotated[tuple[Rung, ...], Field(min_length=2)]
    beside: tuple[Beside, ...] = ()

    @model_validator(mode="after")
    def _names_and_seeds_are_distinct(self) -> Ladder:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("a seed stands twice; each counts once")
        names = [*(cell_name(rung, seed) for rung in self.rungs for seed in self.seeds), *(one.name for one in self.beside)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two runs would be named '{twice[0]}'; give each rung its own name")
        for rung in self.rungs:
            if any(value.startswith("seed=") for value in rung.set):
                raise ValueError(f"rung '{rung.name}' sets the seed, which seeds names for all rungs; take it out")
        return self


def cell_name(rung: Rung, seed: int) -> str:
    """Return the name of the run of a rung with a seed."""
    return f"{rung.name}-seed{seed}"


def load_ladder(path: Path) -> tuple[Ladder, dict[str, Recipe]]:
    """Read a ladder; return also the recipe of every rung and of what stands beside, by name.

    Raises UserError for a rung that sees another number of tokens than the first, or is asked other questions.
    """
    ladder = load_config(Ladder, path)
    recipes = {rung.name: load_config(Recipe, ladder.recipe, rung.set) for rung in ladder.rungs}
    first = recipes[ladder.rungs[0].name]
    if first.tasks is None or not first.evaluation.mean_languages:
        raise UserError("a ladder compares means of tasks; give its recipe tasks and evaluation.mean_languages.", file=path)
    for name, recipe in recipes.items():
        check_same_questions(name, recipe, ladder.rungs[0].name, first, path)
        for what in ("total_steps", "training.tokens_per_step", "training.batch_warmup"):
            if _value(recipe, what) != _value(first, what):
                raise UserError(f"rung '{name}' has another {what} than '{ladder.rungs[0].name}': not the same tokens.", file=path)
    for one in ladder.beside:
        recipes[one.name] = load_config(Recipe, one.recipe)
        check_same_questions(one.name, recipes[one.name], ladder.rungs[0].name, first, path)
    return ladder, recipes


def check_same_questions(name: str, recipe: Recipe, other_name: str, other: Recipe, file: Path) -> None:
    """Raise UserError where two recipes are not scored alike."""
    for part in ("tasks", "evaluation"):
        if getattr(recipe, part) != getattr(other, part):
            raise UserError(f"'{name}' has another {part} section than '{other_name}', so the two could not be compared.", file=file)


def _value(recipe: Recipe, name: str) -> object:
    value: object = recipe
    for part in name.split("."):
        value = getattr(value, part)
    return value
