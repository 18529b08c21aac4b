"""A ladder: what each part of a recipe adds, rung by rung, at equal tokens and with several pretraining seeds (YAML)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from xlm.config.recipe import Recipe
from xlm.config.strict import StrictModel, load_config
from xlm.errors import UserError

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


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
    seeds: Annotated[tuple[int, ...], Field(min_length=1)] = (1, 2, 3)
    rungs: Annotated[tuple[Rung, ...], Field(min_length=2)]
    beside: tuple[Beside, ...] = ()

    @model_validator(mode="after")
    def _names_and_seeds_are_distinct(self) -> Ladder:
        names = [*(rung.name for rung in self.rungs), *(one.name for one in self.beside)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two rungs are named '{twice[0]}'; give each its own name")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("a seed stands twice; each counts once")
        return self


def load_ladder(path: Path) -> Ladder:
    """Read a ladder and check that its rungs are what they are compared as.

    Raises UserError for a rung that sees another number of tokens than the first, or asks other questions.
    """
    ladder = load_config(Ladder, path)
    recipes = {rung.name: load_config(Recipe, ladder.recipe, rung.set) for rung in ladder.rungs}
    first, *others = recipes
    for name in others:
        for what, value in _compared(recipes[name]).items():
            if value != _compared(recipes[first])[what]:
                raise UserError(f"rung '{name}' has other {what} than '{first}', so the two would not be compared fairly.", file=path)
    for rung in ladder.rungs:
        if recipes[rung.name].tasks is None:
            raise UserError(f"rung '{rung.name}' has no tasks, so there is nothing to compare.", file=path)
    return ladder


def _compared(recipe: Recipe) -> dict[str, object]:
    return {
        "tokens": recipe.total_steps * recipe.training.tokens_per_step,
        "tasks": recipe.tasks,
        "evaluation": recipe.evaluation,
        "corpora": recipe.corpora,
        "vocabulary": recipe.vocabulary,
    }
