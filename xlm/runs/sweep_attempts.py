"""The points of a sweep as processes, so many at a time: each is started, waited for and judged, and all are stopped in order."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from xlm.runs.cores import usable_cores
from xlm.runs.processes import stop_tree, without_rank
from xlm.runs.sweep import Point
from xlm.runs.sweep_folder import SweepFolder

_ALREADY_DONE = b"pretraining: already done"
_SAVE_GRACE_S = 60.0
_QUIET = {"OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True)
class _Attempt:
    """A point that is being trained, and what was there before."""

    point: Point
    child: subprocess.Popen[bytes]
    began: float
    record: int | None  # when the point's training was finished the last time, perhaps with another recipe
    log_bytes: int


def run_points(folder: SweepFolder, points: Sequence[Point], command: Callable[[Point], list[str]], parallel: int) -> dict[str, int]:
    """Run points, ``parallel`` at a time, and return their exit codes by name.

    A KeyboardInterrupt starts no others, lets those that run save, and is raised again.
    """
    waiting, codes = list(points), {}
    running: list[_Attempt] = []
    try:
        while waiting or running:
            while waiting and len(running) < parallel:
                point = waiting.pop(0)
                running.append(_start(folder, point, command(point), parallel))
                print(f"sweep: {point.name} started, output in {folder.log(point)}", flush=True)
            for attempt in list(running):
                if attempt.child.poll() is None:
                    continue
                running.remove(attempt)
                name = attempt.point.name
                # The launcher also returns 0 when a signal ended it.
                codes[name] = attempt.child.returncode or int(not _has_trained(folder, attempt))
                if codes[name] == 0:
                    folder.mark_finished(attempt.point)
                state = "failed" if codes[name] else "finished"
                print(f"sweep: {name} {state} after {time.monotonic() - attempt.began:,.0f} s ({len(waiting)} to start)", flush=True)
            time.sleep(0.2)
    except KeyboardInterrupt:
        with ThreadPoolExecutor(max(1, len(running))) as pool:
            list(pool.map(partial(stop_tree, ranks_first=True, grace_s=_SAVE_GRACE_S), [attempt.child for attempt in running]))
        raise
    return codes


def _start(folder: SweepFolder, point: Point, command: Sequence[str], parallel: int) -> _Attempt:
    """Start a point in a session of its own, with its output in its log."""
    environment = {**_QUIET, **without_rank(os.environ)}
    if parallel > 1:  # points share the cores
        environment.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // parallel)))
    with folder.log(point).open("ab") as log:
        log_bytes, record = log.tell(), folder.when_finished(point)
        child = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    return _Attempt(point, child, time.monotonic(), record, log_bytes)


def _has_trained(folder: SweepFolder, attempt: _Attempt) -> bool:
    """Return whether an attempt finished its point: wrote the training's record, or found that there was nothing to do."""
    now = folder.when_finished(attempt.point)
    if now is None or now != attempt.record:
        return now is not None
    with folder.log(attempt.point).open("rb") as log:
        log.seek(attempt.log_bytes)
        return _ALREADY_DONE in log.read()
