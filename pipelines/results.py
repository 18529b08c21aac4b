"""Train and score every rung of a ladder with every pretraining seed, and write the page that compares them.

A cell is a run folder of its own (runs/results/<rung>-seed<n>), made by quickstart.py; the stages before shards are made once and
shared. It may take hours: the same command goes on where it was, and finished cells are not made again.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from xlm.config.ladder import Ladder, cell_name, load_ladder
from xlm.config.recipe import Recipe
from xlm.config.strict import load_config
from xlm.errors import exits_cleanly
from xlm.evaluation.intent_systems import CHARACTER_FLOOR, FINETUNED, PROBE, SWITCHED_FINETUNED, SWITCHED_PROBE
from xlm.evaluation.ladder import Answers, compare_rungs, rung_scores
from xlm.mixing.steps import Steps
from xlm.report.ladder_page import draw_ladder_means, ladder_page
from xlm.runs.cells import Cell, check_cells, make_cell, make_shared
from xlm.runs.cli import check_run_folder
from xlm.runs.folder import RunFolder
from xlm.runs.lock import only_writer
from xlm.runs.processes import interrupt_when_terminated
from xlm.runs.stage import write_json
from xlm.training.trainable import check_trainable

HERE = Path(__file__).resolve().parent
SYSTEMS = (PROBE, SWITCHED_PROBE, FINETUNED, SWITCHED_FINETUNED)
DICTIONARY = ((SWITCHED_PROBE, PROBE), (SWITCHED_FINETUNED, FINETUNED))


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
        results = read_results(ladder, arguments.ladder, cells, recipes[ladder.rungs[0].name])
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


def read_results(ladder: Ladder, path: Path, cells: dict[str, Cell], recipe: Recipe) -> dict[str, Any]:
    """Return the scores of every rung and every comparison; ``recipe`` is the first rung's, whose questions are asked of all."""
    means, samples = recipe.evaluation.mean_languages, recipe.evaluation.bootstrap_samples
    dev = [language for language in recipe.evaluation.dev_languages if language in means]
    rungs = {rung.name: [cells[cell_name(rung, seed)].run for seed in ladder.seeds] for rung in ladder.rungs}
    answers = {name: Answers([run.zero_shot for run in runs]) for name, runs in rungs.items()}
    titles = {rung.name: rung.title for rung in ladder.rungs}
    beside = []
    for one in ladder.beside:
        found = [cells[one.name].run]
        beside.append(described(one.name, one.title, found, Answers([run.zero_shot for run in found]), means, dev))
    return {
        "recipe": recipe.name,
        "ladder": str(path),
        "tokens": sum(rows * length for rows, length in rows_by_length(recipe)),
        "seeds": list(ladder.seeds),
        "mean_languages": list(means),
        "dev_languages": dev,
        "rungs": [described(name, titles[name], runs, answers[name], means, dev) for name, runs in rungs.items()],
        "beside": beside,
        "comparisons": compare_rungs(answers, SYSTEMS, DICTIONARY, means, samples=samples),
    }


def rows_by_length(recipe: Recipe) -> list[tuple[int, int]]:
    """Return how many rows of which length each phase draws, batch warm-up counted."""
    steps = Steps.of(recipe)
    return [(stop - first, length) for (first, stop), length in zip(pairwise(steps.first_rows), steps.lengths, strict=True)]


def described(name: str, title: str, runs: list[RunFolder], answers: Answers, means: tuple[str, ...], dev: Sequence[str]) -> dict[str, Any]:
    """Return what one rung scored, means over its runs."""
    scores = [json.loads((run.root / "scores.json").read_text(encoding="utf-8")) for run in runs]

    def mean(values: list[float | None]) -> float | None:
        present = [value for value in values if value is not None]
        return sum(present) / len(present) if present else None

    validations = [score["training"].get("validation", {}) for score in scores]
    return {
        "name": name,
        "title": title,
        "intents": rung_scores(answers, (*SYSTEMS, CHARACTER_FLOOR), means, dev),
        "retrieval": mean([score["summary"].get("retrieval.top1_200") for score in scores]),
        "losses": {name: mean([found.get(f"validation/{name}") for found in validations]) for name in ("mlm", "tlm")},
    }


if __name__ == "__main__":
    main()
