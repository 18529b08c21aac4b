"""Train and score every rung of a ladder with every pretraining seed, and write the page that compares them.

A cell is a run folder of its own (runs/results/<rung>-seed<n>), made by quickstart.py; the stages before shards are made once and
shared. It may take hours: the same command goes on where it was, and finished cells are not made again.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from xlm.config.ladder import Ladder, cell_name, load_ladder
from xlm.config.recipe import Recipe
from xlm.config.strict import load_config
from xlm.errors import exits_cleanly
from xlm.report.ladder_page import draw_ladder_means, ladder_page
from xlm.report.ladder_results import read_results
from xlm.runs.cells import Cell, check_cells, make_cell, make_shared
from xlm.runs.cli import check_run_folder
from xlm.runs.folder import RunFolder
from xlm.runs.lock import only_writer
from xlm.runs.processes import interrupt_when_terminated
from xlm.runs.stage import write_json
from xlm.training.trainable import check_trainable

HERE = Path(__file__).resolve().parent


def parser() -> argparse.ArgumentParser:
    """Return the parser."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--ladder", type=Path, required=True, metavar="FILE", help="rungs and seeds, YAML (pipelines/ladders/)")
    made.add_argument("--folder", type=Path, default=Path("runs/results"), metavar="DIR", help="where runs go (default: runs/results)")
    made.add_argument("--output", type=Path, default=None, metavar="FILE", help="the page (default: results.md in the folder)")
    made.add_argument("--dry-run", action="store_true", help="print the cells and their commands, and start nothing")
    return made


@exits_cleanly
def main() -> None:
    """Make what is missing, compare, and write the page."""
    arguments = parser().parse_args()
    ladder, recipes = load_ladder(arguments.ladder)
    check_run_folder(arguments.folder)
    check_recipes(ladder, recipes, arguments.ladder)
    cells = cells_of(ladder, arguments.folder)
    if arguments.dry_run:
        for name, cell in cells.items():
            print(f"{name}\n  " + shlex.join(["python", "pipelines/quickstart.py", *cell.options()]))
        return
    interrupt_when_terminated()
    with only_writer(arguments.folder, "results"):
        failed = make_cells(cells, ladder, arguments.folder)
        if failed:
            print(f"results: {', '.join(failed)} failed (above), so nothing is compared; the same command tries again.", file=sys.stderr)
            sys.exit(1)
        results = read_results(ladder, arguments.ladder, {name: cell.run for name, cell in cells.items()}, recipes[ladder.rungs[0].name])
        write_json(arguments.folder / "results.json", results)
        output = arguments.output if arguments.output is not None else arguments.folder / "results.md"
        output.parent.mkdir(parents=True, exist_ok=True)
        draw_ladder_means(results, output.parent / "results")
        output.write_text(ladder_page(results), encoding="utf-8")
    print(f"results: {output}")


def cells_of(ladder: Ladder, folder: Path) -> dict[str, Cell]:
    """Return every run of the ladder by its name: the seeds of the first rung, of the second, and so on, then what stands beside."""
    cells = {
        cell_name(rung, seed): Cell(ladder.recipe, (*rung.set, f"seed={seed}"), RunFolder(folder / cell_name(rung, seed)))
        for rung in ladder.rungs
        for seed in ladder.seeds
    }
    return cells | {one.name: Cell(one.recipe, (), RunFolder(folder / one.name)) for one in ladder.beside}


def check_recipes(ladder: Ladder, recipes: dict[str, Recipe], path: Path) -> None:
    """Raise UserError now for a recipe that would only fail hours from here."""
    for recipe in recipes.values():
        check_trainable(recipe)
    seeded = {
        cell_name(rung, seed): load_config(Recipe, ladder.recipe, [*rung.set, f"seed={seed}"])
        for rung in ladder.rungs
        for seed in ladder.seeds
    }
    check_cells(load_config(Recipe, ladder.recipe), seeded, path)


def make_cells(cells: dict[str, Cell], ladder: Ladder, folder: Path) -> list[str]:
    """Run what is not there; one that fails does not keep the others from being made. Returns the names of those that did."""
    base = make_shared(ladder.recipe, HERE, folder)
    failed = []
    for number, (name, cell) in enumerate(cells.items(), start=1):
        print(f"\nresults: {name} ({number} of {len(cells)})", flush=True)
        if make_cell(cell, base if cell.recipe == ladder.recipe else None, HERE) != 0:
            failed.append(name)
    return failed


if __name__ == "__main__":
    main()
