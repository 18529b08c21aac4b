"""Where the time of an optimizer step goes, on both sides: torch's profiler, added up by part, as a table for NOTES.md.

    python benchmarks/step_profile.py --width 768 --kind monolingual --precision fp32 --step-tokens 8192

Both sides run in this process, one after the other; `benchmarks/train.py` is what compares their speed. Nothing is
written, so `benchmarks/run.py` does not take this for a benchmark.
"""

from __future__ import annotations

import argparse
import gc
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from training.cases import STEP_TOKENS, VOCABULARY, Case
from training.parts import seconds_by_part, table
from training.side import Side

SHAPES = {128: (2, 2), 256: (6, 4), 768: (12, 12)}  # width: layers, heads
NAMES = {"ours": "ours", "peer": "transformers"}
LONGEST_OPERATIONS = 25


def profiled(name: str, case: Case) -> Any:  # noqa: ANN401
    """Return the profiler after one optimizer step of a side, its warm-up not counted."""
    side = Side(name, case)
    side.load()
    for number, tokens in ((0, 1), (1, None)):
        parts = side.prepare(number, tokens)["parts"]
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
            for index in range(parts):
                side.part(index)
            side.update()
    return profiler


def report() -> None:
    """Print the table, and on request the operations that take longest."""
    parser = argparse.ArgumentParser(description="Where the time of a training step goes.")
    parser.add_argument("--width", type=int, default=256, choices=sorted(SHAPES))
    parser.add_argument("--kind", default="monolingual", choices=["monolingual", "pairs"])
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--step-tokens", type=int, default=STEP_TOKENS)
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY)
    parser.add_argument("--side", choices=sorted(NAMES), action="append")
    parser.add_argument("--operations", action="store_true", help="also print the operations that take longest")
    options = parser.parse_args()
    layers, heads = SHAPES[options.width]
    case = Case(
        options.width, layers, heads, options.kind, options.precision, 8, 1, vocabulary=options.vocabulary, step_tokens=options.step_tokens
    )
    columns = {}
    for name in options.side or NAMES:
        profiler = profiled(name, case)
        columns[NAMES[name]] = seconds_by_part(profiler.events(), case.vocabulary)
        if options.operations:
            averages = profiler.key_averages(group_by_input_shape=True)
            print(averages.table(sort_by="self_cpu_time_total", row_limit=LONGEST_OPERATIONS, max_shapes_column_width=60))
        del profiler
        gc.collect()
    print(f"{case.name}, {torch.get_num_threads()} threads, {options.step_tokens} tokens\n\n{table(columns)}")


if __name__ == "__main__":
    report()
