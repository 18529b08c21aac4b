"""Pretrain every candidate of a search and rank them on dev templates of the dev languages; no test score is made or read.

A candidate is a run folder of its own (runs/search/<name>); what it was scored stays in its dev.json. The same command goes on where
it was.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from xlm.config.recipe import Recipe
from xlm.config.search import load_search
from xlm.config.strict import load_config
from xlm.errors import exits_cleanly
from xlm.evaluation.dev_scores import dev_scores
from xlm.report.search_page import search_page
from xlm.runs.cells import Cell, check_cells, make_cell, make_shared
from xlm.runs.cli import check_run_folder
from xlm.runs.fingerprint import code_fingerprint, fingerprint
from xlm.runs.folder import RunFolder
from xlm.runs.lock import only_writer
from xlm.runs.processes import interrupt_when_terminated
from xlm.runs.stage import read_record, write_json
from xlm.training.trainable import check_trainable

HERE = Path(__file__).resolve().parent
SCORED = "dev.json"


def parser() -> argparse.ArgumentParser:
    """Return the parser."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--search", type=Path, required=True, metavar="FILE", help="candidates, YAML (pipelines/searches/)")
    made.add_argument("--folder", type=Path, default=Path("runs/search"), metavar="DIR", help="where runs go (default: runs/search)")
    made.add_argument("--output", type=Path, default=None, metavar="FILE", help="the page (default: search.md in the folder)")
    return made


@exits_cleanly
def main() -> None:
    """Pretrain and score what is missing, and write the page; 1 where a candidate failed."""
    arguments = parser().parse_args()
    search, recipes = load_search(arguments.search)
    check_run_folder(arguments.folder)
    for recipe in recipes.values():
        check_trainable(recipe)
    base_recipe = load_config(Recipe, search.recipe)
    check_cells(base_recipe, recipes, arguments.search)
    interrupt_when_terminated()
    with only_writer(arguments.folder, "search"):
        base = make_shared(search.recipe, HERE, arguments.folder)
        found, failed = [], []
        for number, one in enumerate(search.candidates, start=1):
            print(f"\nsearch: {one.name} ({number} of {len(recipes)})", flush=True)
            cell = Cell(search.recipe, one.set, RunFolder(arguments.folder / one.name))
            if make_cell(cell, base, HERE, "--until", "pretrain.py") != 0:
                failed.append(one.name)
            else:
                found.append({"name": one.name, "title": one.title, "set": list(one.set), **scored(cell, recipes[one.name])})
        output = arguments.output if arguments.output is not None else arguments.folder / "search.md"
        output.parent.mkdir(parents=True, exist_ok=True)
        page = search_page(base_recipe.name, str(arguments.search), recipes[search.candidates[0].name].evaluation.dev_languages, found)
        output.write_text(page, encoding="utf-8")
    print(f"{page}\nsearch: {output}")
    if failed:
        print(f"search: {', '.join(failed)} failed (above) and are not in the table; the same command tries again.", file=sys.stderr)
        sys.exit(1)


def scored(cell: Cell, recipe: Recipe) -> dict[str, Any]:
    """Score a candidate, unless that was done for exactly this; return also what its pretraining took."""
    trained = read_record(cell.run.train)
    code = code_fingerprint("evaluation", "tasks", "codeswitch", "model", "vocab")
    key = fingerprint([trained.fingerprint, recipe.evaluation.model_dump(mode="json"), code])
    path = cell.run.root / SCORED
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if kept.get("key") != key:
        kept = {"key": key, "scores": dev_scores(recipe, cell.run)}
        write_json(path, kept)
    tokens = sum(trained.summary.get("tokens_by_language", {}).values())
    return {"scores": kept["scores"], "train_s": trained.wall_s, "tokens": tokens}


if __name__ == "__main__":
    main()
