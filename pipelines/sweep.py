"""Pretrain a recipe once for every point of a grid: --set a.b=1,2,3 --set c=x,y is six runs.

The stages before training come from the run folder (--run-dir) and are shared. Each point has a run folder of its own
in the sweep's folder, with its training and its output in pretrain.log; in MLflow its run is shown below the sweep's. The
same command goes on where it was: finished points are skipped, others continue from their last checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from xlm.errors import UserError, exits_cleanly
from xlm.report.sweep_figure import draw_sweep
from xlm.report.sweep_table import PointResult, sweep_table
from xlm.runs.cli import RUNS, check_run_folder, recipe_parser
from xlm.runs.folder import RunFolder
from xlm.runs.lock import only_writer
from xlm.runs.processes import free_port, stop_tree
from xlm.runs.stage import RECORD, write_json
from xlm.runs.sweep import Point, launcher_arguments, link_stages, make_grid, set_options
from xlm.tracking.json_lines import JsonLines
from xlm.tracking.store import default_tracking_uri
from xlm.tracking.tracker import Tracker

HERE = Path(__file__).resolve().parent
SWEEP, POINT, LOG = "sweep.json", "point.json", "pretrain.log"
METRICS = "metrics.jsonl"
ALREADY_DONE = b"pretraining: already done"
SAVE_GRACE_S = 60.0
QUIET = {"OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True)
class Attempt:
    """A point that is being trained, and what was there before."""

    point: Point
    child: subprocess.Popen[bytes]
    began: float
    record: int | None  # when the point's training was finished the last time, perhaps with another recipe
    log_bytes: int


@dataclass(frozen=True)
class Sweep:
    """What all points share."""

    arguments: argparse.Namespace
    base: RunFolder
    root: Path
    key: str  # of the MLflow run that the points' runs are shown below
    tracking_uri: str

    def folder(self, point: Point) -> RunFolder:
        """Return the run folder of a point."""
        return RunFolder(self.root / point.name)


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
    sweep = Sweep(arguments, base, root, sweep_key(root), default_tracking_uri(base.root))
    if arguments.dry_run:
        for point in points:
            print(f"{point.name}\n  " + " ".join(command_of(sweep, point)))
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    with only_writer(root, "sweep"):
        failed = train_points(sweep, points)
    sys.exit(1 if failed else 0)


def train_points(sweep: Sweep, points: Sequence[Point]) -> int:
    """Train what is not finished, show all results, and return how many points failed."""
    for point in points:
        link_stages(sweep.base, sweep.folder(point))
    write_json(sweep.root / SWEEP, {"key": sweep.key, "points": {point.name: dict(point.values) for point in points}})
    os.environ["MLFLOW_TRACKING_URI"] = sweep.tracking_uri
    tracker = Tracker(sweep.root, key=sweep.key, name=sweep.root.resolve().name)
    tracker.start()
    tracker.flush()  # the run exists before a point looks for it
    left = [point for point in points if not is_finished(sweep, point)]
    if len(left) < len(points):
        print(f"sweep: {len(points) - len(left)} of {len(points)} points are finished already.")
    codes = run_all(sweep, left)
    results = [result_of(sweep, point, codes.get(point.name, 0)) for point in points]
    table = sweep_table(results)
    print("\n" + "\n".join(table))
    write_json(sweep.root / "results.json", [result.as_json() for result in results])
    figure = draw_sweep(results, sweep.root)
    if figure is not None:
        tracker.log_figures([figure])
    for name, code in codes.items():
        if code:
            print(
                f"sweep: {name} failed with exit code {code}; the end of {sweep.root / name / LOG}:\n  {last_line(sweep.root / name / LOG)}"
            )
    failed = sum(code != 0 for code in codes.values())
    tracker.close("FAILED" if failed else "FINISHED")
    return failed


def run_all(sweep: Sweep, points: Sequence[Point]) -> dict[str, int]:
    """Run points, so many at a time, and return their exit codes; Ctrl-C lets those that run save, and starts no others."""
    waiting, codes = list(points), {}
    running: list[Attempt] = []
    try:
        while waiting or running:
            while waiting and len(running) < sweep.arguments.parallel:
                point = waiting.pop(0)
                running.append(start(sweep, point))
                print(f"sweep: {point.name} started, output in {sweep.folder(point).root / LOG}", flush=True)
            for attempt in list(running):
                if attempt.child.poll() is None:
                    continue
                running.remove(attempt)
                name = attempt.point.name
                # The launcher also returns 0 when a signal ended it.
                codes[name] = attempt.child.returncode or int(not has_trained(sweep, attempt))
                if codes[name] == 0:
                    write_json(sweep.folder(attempt.point).root / POINT, attempt.point.as_json())
                state = "failed" if codes[name] else "finished"
                print(f"sweep: {name} {state} after {time.monotonic() - attempt.began:,.0f} s ({len(waiting)} to start)", flush=True)
            time.sleep(0.2)
    except KeyboardInterrupt:
        with ThreadPoolExecutor(max(1, len(running))) as pool:
            list(pool.map(partial(stop_tree, leaves_first=True, grace_s=SAVE_GRACE_S), [attempt.child for attempt in running]))
        raise
    return codes


def start(sweep: Sweep, point: Point) -> Attempt:
    """Start a point in a session of its own, with its output in its log."""
    folder = sweep.folder(point).root
    environment = {**QUIET, **os.environ}
    if sweep.arguments.parallel > 1:  # points share the cores
        cores = len(os.sched_getaffinity(0))
        environment.setdefault("OMP_NUM_THREADS", str(max(1, cores // sweep.arguments.parallel)))
    with (folder / LOG).open("ab") as log:
        log_bytes, record = log.tell(), when_finished(sweep, point)
        child = subprocess.Popen(command_of(sweep, point), stdout=log, stderr=log, env=environment, start_new_session=True)
    return Attempt(point, child, time.monotonic(), record, log_bytes)


def command_of(sweep: Sweep, point: Point) -> list[str]:
    """Return the command that trains a point; with a launcher on a port of its own."""
    arguments = sweep.arguments
    command = [str(HERE / "pretrain.py"), "--recipe", str(arguments.recipe), *set_options(point.overrides)]
    command += ["--run-dir", str(sweep.folder(point).root), "--deepspeed_config", str(arguments.deepspeed_config)]
    command += ["--parent-run", sweep.key]
    if arguments.launcher_args is None:
        return [sys.executable, *command]
    options = launcher_arguments(arguments.launcher_args)
    # No host file: one left at the launcher's default path must not send this run to other machines.
    options += [] if any(option.startswith(("--hostfile", "-H")) for option in options) else ["--hostfile", os.devnull]
    options += [] if any(option.startswith("--master_port") for option in options) else ["--master_port", str(free_port())]
    return [sys.executable, str(Path(sys.executable).with_name("deepspeed")), *options, *command]


def when_finished(sweep: Sweep, point: Point) -> int | None:
    """Return when the training in a point's folder was finished, None where it is not."""
    try:
        return (sweep.folder(point).train / RECORD).stat().st_mtime_ns
    except FileNotFoundError:
        return None


def has_trained(sweep: Sweep, attempt: Attempt) -> bool:
    """Return whether an attempt finished its point: wrote the training's record, or found that there was nothing to do."""
    now = when_finished(sweep, attempt.point)
    if now is None or now != attempt.record:
        return now is not None
    with (sweep.folder(attempt.point).root / LOG).open("rb") as log:
        log.seek(attempt.log_bytes)
        return ALREADY_DONE in log.read()


def is_finished(sweep: Sweep, point: Point) -> bool:
    """Return whether a point has been trained to its end, as it is asked for now."""
    asked = _read(sweep.folder(point).root / POINT).get("fingerprint")
    return when_finished(sweep, point) is not None and asked == point.fingerprint


def result_of(sweep: Sweep, point: Point, code: int) -> PointResult:
    """Return how far a point came and where its curve ends."""
    lines = tuple(JsonLines(sweep.folder(point).train / METRICS))
    return PointResult(point.name, point.values, point.recipe.total_steps, is_finished(sweep, point), code, lines)


def sweep_key(root: Path) -> str:
    """Return the key of the sweep's MLflow run, the same after a restart."""
    return str(_read(root / SWEEP).get("key") or f"sweep-{uuid.uuid4().hex}")


def last_line(path: Path) -> str:
    """Return the last line of a log that says something."""
    lines = [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    return next(iter((errors or lines)[-1:]), "(nothing was printed)")


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
