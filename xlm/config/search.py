"""A search: versions of a recipe to choose from, by dev templates of its dev languages and nothing else (YAML)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from xlm.config.ladder import Rung, check_same_questions
from xlm.config.recipe import Recipe
from xlm.config.strict import StrictModel, load_config
from xlm.errors import UserError


class Search(StrictModel):
    """``recipe`` once for each candidate."""

    recipe: Path
    candidates: Annotated[tuple[Rung, ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Search:
        names = [one.name for one in self.candidates]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two candidates are named '{twice[0]}'; give each its own name")
        return self


def load_search(path: Path) -> tuple[Search, dict[str, Recipe]]:
    """Read a search; return also the recipe of every candidate by name.

    Raises UserError for a candidate that could not be chosen without looking at test scores, or is asked other questions.
    """
    search = load_config(Search, path)
    recipes = {one.name: load_config(Recipe, search.recipe, one.set) for one in search.candidates}
    first = search.candidates[0].name
    for name, recipe in recipes.items():
        if recipe.tasks is None or not recipe.evaluation.dev_languages:
            raise UserError(f"candidate '{name}' has no evaluation.dev_languages to be chosen by; name some in the recipe.", file=path)
        check_same_questions(name, recipe, first, recipes[first], path)
    return search, recipes
