"""Train and score every rung of a ladder with every pretraining seed, and write the page that compares them.

A cell is a run folder of its own (runs/results/<rung>-seed<n>), made by quickstart.py; the stages before shards are made once and
shared. It may take hours: the same command goes on where it was, and finished cells are not made again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from xlm.config.ladder import Ladder, load_ladder
from xlm.config.recipe import Recipe
from xlm.config.strict import load_config
from xlm.errors import exits_cleanly
from xlm.evaluation.intent_systems import CHARACTER_FLOOR, FINETUNED, PROBE, SWITCHED_FINETUNED, SWITCHED_PROBE
from xlm.evaluation.ladder import Answers, compare_rungs, rung_scores
from xlm.report.ladder_page import draw_ladder_means, ladder_page
from xlm.runs.cells import Cell, make_cell, make_shared
from xlm.runs.cli import check_run_folder
from xlm.runs.folder import RunFolder
from xlm.runs.lock import only_writer
from xlm.runs.stage import write_json

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
    ladder = load_ladder(arguments.ladder)
    check_run_folder(arguments.folder)
    cells = cells_of(ladder, arguments.folder)
    if arguments.dry_run:
        for name, cell in cells.items():
            print(f"{name}\n  " + " ".join(["python", "pipelines/quickstart.py", *cell.options()]))
        return
    with only_writer(arguments.folder, "results"):
        make_cells(cells, ladder, arguments.folder)
        results = read_results(ladder, arguments.ladder, cells)
        write_json(arguments.folder / "results.json", results)
        output = arguments.output if arguments.output is not None else arguments.folder / "results.md"
        output.parent.mkdir(parents=True, exist_ok=True)
        draw_ladder_means(results, output.parent / "results")
        output.write_text(ladder_page(results), encoding="utf-8")
    print(f"results: {output}")


def cells_of(ladder: Ladder, folder: Path) -> dict[str, Cell]:
    """Return every run of the ladder by its name: the seeds of the first rung, of the second, and so on, then what stands beside."""
    cells = {
        f"{rung.name}-seed{seed}": Cell(ladder.recipe, (*rung.set, f"seed={seed}"), RunFolder(folder / f"{rung.name}-seed{seed}"))
        for rung in ladder.rungs
        for seed in ladder.seeds
    }
    return cells | {one.name: Cell(one.recipe, (), RunFolder(folder / one.name)) for one in ladder.beside}


def make_cells(cells: dict[str, Cell], ladder: Ladder, folder: Path) -> None:
    """Run what is not there; ends with a cell's exit code where it fails."""
    base = make_shared(ladder.recipe, HERE, folder)
    for number, (name, cell) in enumerate(cells.items(), start=1):
        print(f"\nresults: {name} ({number} of {len(cells)})", flush=True)
        make_cell(cell, base if cell.recipe == ladder.recipe else None, HERE)


def read_results(ladder: Ladder, path: Path, cells: dict[str, Cell]) -> dict[str, Any]:
    """Return the scores of every rung and every comparison."""
    recipe = load_config(Recipe, ladder.recipe)
    means, samples = recipe.evaluation.mean_languages, recipe.evaluation.bootstrap_samples
    rungs = {rung.name: [cells[f"{rung.name}-seed{seed}"].run for seed in ladder.seeds] for rung in ladder.rungs}
    answers = {name: Answers([run.zero_shot for run in runs]) for name, runs in rungs.items()}
    titles = {rung.name: rung.title for rung in ladder.rungs}
    beside = []
    for one in ladder.beside:
        found = [cells[one.name].run]
        beside.append(described(one.name, one.title, found, Answers([run.zero_shot for run in found]), means))
    return {
        "recipe": recipe.name,
        "ladder": str(path),
        "tokens": recipe.total_steps * recipe.training.tokens_per_step,
        "seeds": list(ladder.seeds),
        "mean_languages": list(means),
        "rungs": [described(name, titles[name], runs, answers[name], means) for name, runs in rungs.items()],
        "beside": beside,
        "comparisons": compare_rungs(answers, SYSTEMS, DICTIONARY, means, samples=samples),
    }


def described(name: str, title: str, runs: list[RunFolder], answers: Answers, means: tuple[str, ...]) -> dict[str, Any]:
    """Return what one rung scored, means over its runs."""
    scores = [json.loads((run.root / "scores.json").read_text(encoding="utf-8")) for run in runs]

    def mean(values: list[float | None]) -> float | None:
        present = [value for value in values if value is not None]
        return sum(present) / len(present) if present else None

    validations = [score["training"].get("validation", {}) for score in scores]
    return {
        "name": name,
        "title": title,
        "intents": rung_scores(answers, (*SYSTEMS, CHARACTER_FLOOR), means),
        "retrieval": mean([score["summary"].get("retrieval.top1_200") for score in scores]),
        "losses": {name: mean([found.get(f"validation/{name}") for found in validations]) for name in ("mlm", "tlm")},
    }


if __name__ == "__main__":
    main()
