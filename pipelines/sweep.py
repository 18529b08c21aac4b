"""Pretrain a recipe once for every point of a grid: --set a.b=1,2,3 --set c=x,y is six runs.

The stages before training come from the run folder (--run-dir) and are shared. Each point has a run folder of its own
in the sweep's folder, with its training and its output in pretrain.log; in MLflow its run is shown below the sweep's. The
same command goes on where it was: finished points are skipped, others continue from their last checkpoint.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from xlm.errors import UserError, exits_cleanly
from xlm.report.sweep_figure import draw_sweep
from xlm.report.sweep_table import PointResult, sweep_table
from xlm.runs.cli import RUNS, check_run_folder, recipe_parser
from xlm.runs.folder import RunFolder
from xlm.runs.lock import only_writer
from xlm.runs.processes import free_port, interrupt_when_terminated
from xlm.runs.stage import write_json
from xlm.runs.sweep import Point, launcher_arguments, link_stages, make_grid, set_options
from xlm.runs.sweep_attempts import run_points
from xlm.runs.sweep_folder import SweepFolder
from xlm.tracking.json_lines import JsonLines
from xlm.tracking.store import default_tracking_uri
from xlm.tracking.tracker import Tracker

HERE = Path(__file__).resolve().parent
METRICS = "metrics.jsonl"


def sweep_parser() -> argparse.ArgumentParser:
    """Return the parser."""
    parser = recipe_parser(__doc__ or "")
    parser.add_argument("--deepspeed_config", type=Path, required=True, metavar="FILE", help="ZeRO settings, JSON (deepspeed_configs/)")
    parser.add_argument("--sweep-dir", type=Path, default=None, metavar="DIR", help="where points go (default: runs/sweep-<recipe name>)")
    parser.add_argument("--parallel", type=int, default=1, metavar="N", help="how many points are trained at a time (default: 1)")
    parser.add_argument(
        "--launcher-args", default=None, metavar="ARGS", help="start each point with the deepspeed launcher and these, as one word"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the points and their commands, and start nothing")
    return parser


@exits_cleanly
def main() -> None:
    """Train every point that is not finished; 1 where one failed."""
    arguments = sweep_parser().parse_args()
    recipe, points = make_grid(arguments.recipe, arguments.set)
    if arguments.parallel < 1:
        raise UserError(f"--parallel {arguments.parallel} was given; at least one point has to be trained at a time.")
    if not arguments.deepspeed_config.is_file():
        raise UserError(
            "this DeepSpeed file does not exist; deepspeed_configs/ has one for each ZeRO stage.", file=arguments.deepspeed_config
        )
    base = RunFolder(arguments.run_dir if arguments.run_dir is not None else RUNS / recipe.name)
    root = arguments.sweep_dir if arguments.sweep_dir is not None else base.root.parent / f"sweep-{recipe.name}"
    check_run_folder(root)
    folder = SweepFolder(root)
    key = folder.key()
    if arguments.dry_run:
        for point in points:
            print(f"{point.name}\n  " + " ".join(command_of(arguments, folder, key, point)))
        return
    interrupt_when_terminated()
    with only_writer(root, "sweep"):
        for point in points:
            link_stages(base, folder.point(point))
        folder.describe(key, points)
        os.environ["MLFLOW_TRACKING_URI"] = default_tracking_uri(base.root)
        failed = train_points(arguments, folder, key, points)
    sys.exit(1 if failed else 0)


def train_points(arguments: argparse.Namespace, folder: SweepFolder, key: str, points: Sequence[Point]) -> int:
    """Train what is not finished, show all results, and return how many points failed."""
    tracker = Tracker(folder.root, key=key, name=folder.root.resolve().name)
    tracker.start()
    tracker.flush()  # the run exists before a point looks for it
    left = [point for point in points if not folder.is_finished(point)]
    if len(left) < len(points):
        print(f"sweep: {len(points) - len(left)} of {len(points)} points are finished already.")
    codes = run_points(folder, left, partial(command_of, arguments, folder, key), arguments.parallel)
    results = [result_of(folder, point, codes.get(point.name, 0)) for point in points]
    print("\n" + "\n".join(sweep_table(results)))
    write_json(folder.root / "results.json", [result.as_json() for result in results])
    figure = draw_sweep(results, folder.root)
    if figure is not None:
        tracker.log_figures([figure])
    failed = [point for point in left if codes[point.name]]
    for point in failed:
        end = folder.last_line(point)
        print(f"sweep: {point.name} failed with exit code {codes[point.name]}; the end of {folder.log(point)}:\n  {end}")
    tracker.close("FAILED" if failed else "FINISHED")
    return len(failed)


def command_of(arguments: argparse.Namespace, folder: SweepFolder, key: str, point: Point) -> list[str]:
    """Return the command that trains a point; with a launcher on a port of its own."""
    command = [str(HERE / "pretrain.py"), "--recipe", str(arguments.recipe), *set_options(point.overrides)]
    command += ["--run-dir", str(folder.point(point).root), "--deepspeed_config", str(arguments.deepspeed_config)]
    command += ["--parent-run", key]
    if arguments.launcher_args is None:
        return [sys.executable, *command]
    options = launcher_arguments(arguments.launcher_args)
    # No host file: one left at the launcher's default path must not send this run to other machines.
    options += [] if any(option.startswith(("--hostfile", "-H")) for option in options) else ["--hostfile", os.devnull]
    options += [] if any(option.startswith("--master_port") for option in options) else ["--master_port", str(free_port())]
    return [sys.executable, str(Path(sys.executable).with_name("deepspeed")), *options, *command]


def result_of(folder: SweepFolder, point: Point, code: int) -> PointResult:
    """Return how far a point came and where its curve ends."""
    lines = tuple(JsonLines(folder.point(point).train / METRICS))
    return PointResult(point.name, point.values, point.recipe.total_steps, folder.is_finished(point), code, lines)


if __name__ == "__main__":
    main()
