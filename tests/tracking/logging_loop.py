"""A training loop without a model, in a process that can be killed: logging_loop.py ROOT FIRST LAST STEP_S WITH_TRACKER.

Goes on after step FIRST - 1 as the training log does, and prints how long its steps took and what the tracker took of them.
"""

import json
import math
import os
import sys
import time
from pathlib import Path

import xlm.tracking.tracker as tracker_module
from xlm.tracking.json_lines import JsonLines
from xlm.tracking.tracker import Tracker

LANGUAGES = 10


def metrics_at(step):
    named = {"loss": 10 / math.sqrt(step), "learning_rate": step / 7}
    named.update(
        {f"{measure}/mlm/{number}": step + number / 3 for measure in ("loss", "accuracy", "tokens") for number in range(LANGUAGES)}
    )
    return {**named, "peak_memory_bytes": 12345 + step}


def main():
    root, first, last, step_s, every = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
    tracker_module.FLUSH_INTERVAL_S = float(os.environ.get("FLUSH_INTERVAL_S", tracker_module.FLUSH_INTERVAL_S))
    lines = JsonLines(root / "metrics.jsonl")
    tracker = (
        Tracker(root, key=root.name, name=root.name, parameters={"steps": 1}, lines=lines, with_system_metrics=True) if every else None
    )
    if tracker is not None:
        tracker.start()
        if lines.read():
            lines.cut_after(first - 1)
            tracker.resume()
        while tracker.run_id is None:  # the import of mlflow, 2 s of a processor once, is no part of a step
            tracker.flush()
    while not Path(os.environ.get("START_WITH", root)).exists():
        time.sleep(0.01)
    cpu_before_s = 0.0 if tracker is None else tracker.cpu_s
    began, in_log_s = time.monotonic(), 0.0
    for step in range(first, last + 1):
        time.sleep(step_s)
        if every and step % every == 0:
            record = {"step": step, "phase": "only", "time": round(time.time(), 3), **metrics_at(step)}
            lines.append(record)
            told = time.monotonic()
            tracker.log_line(record)
            in_log_s += time.monotonic() - told
        (root / "at").write_text(str(step))
    wall_s = time.monotonic() - began
    result = {"wall_s": wall_s, "in_log_s": in_log_s}
    if tracker is not None:
        result["tracker_cpu_s"] = tracker.cpu_s - cpu_before_s
        deadline = time.monotonic() + 240
        while not tracker.is_complete and time.monotonic() < deadline:  # a training that goes on
            tracker.flush()
        tracker.close()
        result["complete"] = tracker.is_complete
    print(json.dumps(result))


if __name__ == "__main__":
    main()
