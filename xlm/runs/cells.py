"""Cells: runs of one recipe with different overrides, each in a folder of its own, the stages before shards made once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xlm.runs.folder import RunFolder
from xlm.runs.sweep import link_stages, set_options

# What no cell changes, seeds included; shards are keyed by the seed.
SHARED = ("normalised", "tasks", "corpus", "vocabulary")
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
    """Make the stages that cells share, with the scripts of the folder ``pipelines``; return their folder."""
    base = Cell(recipe, (), RunFolder(folder / "shared"))
    for script in FIRST_STAGES:
        run_script(pipelines / script, base.options())
    return base.run


def make_cell(cell: Cell, base: RunFolder | None, pipelines: Path, *options: str) -> None:
    """Make a cell by quickstart.py, which skips what is there; it shares the stages of ``base``, where one is given."""
    if base is not None:
        link_stages(base, cell.run, SHARED, SHARED)
    run_script(pipelines / "quickstart.py", [*cell.options(), *options])


def run_script(script: Path, options: Sequence[str]) -> None:
    """Run a script to its end, or end with its exit code."""
    code = subprocess.run([sys.executable, str(script), *options], check=False).returncode
    if code != 0:
        sys.exit(code if code > 0 else 1)
