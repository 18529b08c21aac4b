"""The command line every pipeline shares: which recipe, which overrides, which run folder."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from xlm.config.recipe import Recipe
from xlm.config.strict import load_config
from xlm.errors import UserError
from xlm.runs.folder import RunFolder

RUNS = Path("runs")


@dataclass(frozen=True)
class Invocation:
    """A parsed command line: the validated recipe and where its run lives."""

    recipe: Recipe
    recipe_path: Path
    folder: RunFolder
    arguments: argparse.Namespace


def recipe_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with ``--recipe``, repeatable ``--set`` and ``--run-dir``."""
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    parser.add_argument("--recipe", type=Path, required=True, metavar="FILE", help="recipe, YAML (pipelines/recipes/)")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="change one value of the recipe; repeatable")
    parser.add_argument("--run-dir", type=Path, default=None, metavar="DIR", help="run folder (default: runs/<recipe name>)")
    return parser


def parse_invocation(parser: argparse.ArgumentParser, argv: list[str] | None = None) -> Invocation:
    """Parse the command line and load the recipe; raises UserError for a recipe that does not hold."""
    arguments = parser.parse_args(argv)
    recipe = load_config(Recipe, arguments.recipe, arguments.set)
    root = arguments.run_dir if arguments.run_dir is not None else RUNS / recipe.name
    check_run_folder(root)
    return Invocation(recipe, arguments.recipe, RunFolder(root), arguments)


def check_run_folder(root: Path) -> None:
    """Raise UserError for a path that no run folder can have: the working folder itself, a file, or below one."""
    if root.resolve() == Path.cwd():
        raise UserError("--run-dir is the working folder itself; give the run a folder of its own, such as runs/mine.")
    for path in (root, *root.parents):
        if path.exists():
            if not path.is_dir():
                raise UserError(f"--run-dir {root} needs a folder where this file is; use another path.", file=path)
            return


def cache_folder() -> Path:
    """Return where downloads are kept: ``$XLM_CACHE``, else ``$XDG_CACHE_HOME/xlm``, else ``~/.cache/xlm``."""
    if "XLM_CACHE" in os.environ:
        return Path(os.environ["XLM_CACHE"])
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "xlm"
