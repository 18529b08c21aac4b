"""Cells: runs of one recipe with different overrides, each in a folder of its own, the stages before shards made once."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xlm.config.recipe import Recipe
from xlm.errors import UserError
from xlm.runs.folder import RunFolder
from xlm.runs.processes import run_to_end
from xlm.runs.sweep import link_stages, set_options

# What no cell changes (`check_cells`), seeds included; shards are keyed by the seed.
SHARED = ("normalised", "tasks", "corpus", "vocabulary")
SHARED_NAME = "shared"
# quickstart.py gives pretraining a minute to save.
GRACE_S = 90.0
FIRST_STAGES = ("build_tasks.py", "build_corpus.py", "build_vocab.py")


@dataclass(frozen=True)
class Cell:
    """One run: a recipe with overrides, in a folder."""

    recipe: Path
    overrides: tuple[str, ...]
    run: RunFolder

    def options(self) -> list[str]:
        """Return what every script is told."""
        return ["--recipe", str(self.recipe), *set_options(self.overrides), "--run-dir", str(self.run.root)]


def make_shared(recipe: Path, pipelines: Path, folder: Path) -> RunFolder:
    """Make the stages that cells share, with the scripts of the folder ``pipelines``, or end with the exit code of one that fails."""
    base = Cell(recipe, (), RunFolder(folder / SHARED_NAME))
    for script in FIRST_STAGES:
        code = run_script(pipelines / script, base.options())
        if code != 0:
            sys.exit(code)
    return base.run


def make_cell(cell: Cell, base: RunFolder | None, pipelines: Path, *options: str) -> int:
    """Make a cell by quickstart.py, which skips what is there, and return its exit code; it shares the stages of ``base``, if given."""
    if base is not None:
        link_stages(base, cell.run, SHARED, SHARED)
    return run_script(pipelines / "quickstart.py", [*cell.options(), *options])


def run_script(script: Path, options: Sequence[str]) -> int:
    """Run a script to its end and return its exit code; Ctrl-C lets a training save, and ends all that was started."""
    code = run_to_end([sys.executable, str(script), *options], os.environ, saves_when_stopped=True, grace_s=GRACE_S)
    return code if code >= 0 else 128 - code


def check_cells(base: Recipe, cells: Mapping[str, Recipe], file: Path) -> None:
    """Raise UserError for a cell that would change a shared stage: its text, tasks or vocabulary would be its own."""
    for name, recipe in cells.items():
        for part in ("corpora", "tasks", "vocabulary"):
            if getattr(recipe, part) != getattr(base, part):
                raise UserError(f"'{name}' changes {part}, which all runs share; take that out, or change it in the recipe.", file=file)
        if base.corpora.max_documents_per_language is not None and recipe.seed != base.seed:
            raise UserError(
                f"'{name}' has seed {recipe.seed}, and the recipe draws corpora.max_documents_per_language by its seed ({base.seed}), so "
                "that the runs would not share their text; take the limit out.",
                file=file,
            )
