"""Pretrain a recipe's model: shards/ + embeddings/ → train/. Killed anywhere, the same command goes on.

On one machine with two processes: ``deepspeed --num_accelerators 2 pipelines/pretrain.py --recipe FILE
--deepspeed_config FILE``; in one process: ``python pipelines/pretrain.py --recipe FILE --deepspeed_config FILE``.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from xlm.config.recipe import Recipe
from xlm.errors import exits_cleanly
from xlm.runs.cli import Invocation, parse_invocation, recipe_parser
from xlm.runs.memory import MemorySampler
from xlm.runs.stage import Stage
from xlm.tracking.json_lines import JsonLines
from xlm.tracking.tracker import Tracker
from xlm.training.assembly import (
    TrainingInputs,
    build_engine,
    describe_model,
    open_run,
    parameter_count,
    read_inputs,
    set_aside_finished,
    stage_inputs,
)
from xlm.training.checkpoint import latest_checkpoint
from xlm.training.distributed import Process, barrier, join_group, leave_group, one_voice, set_threads, tell_all
from xlm.training.loop import METRICS, LoopResult, TrainingLoop
from xlm.training.run_record import RunRecord, with_mlflow_run, write_run_record

STOPPED_EXIT_CODE = 143  # 128 + SIGTERM: saved and ready to be started again


@exits_cleanly
def main() -> None:
    """Train, or go on training, unless it is done."""
    parser = recipe_parser(__doc__ or "")
    parser.add_argument("--deepspeed_config", type=Path, required=True, metavar="FILE", help="ZeRO settings, JSON (deepspeed_configs/)")
    parser.add_argument("--local_rank", type=int, default=0, help="set by the launcher")
    process = Process.from_environment()
    with one_voice(process):
        pretrain(parse_invocation(parser), process)


def pretrain(invocation: Invocation, process: Process) -> None:
    """Run the stage on this rank."""
    recipe, folder = invocation.recipe, invocation.folder
    set_threads(process)
    inputs = read_inputs(recipe, folder, process)
    stage = Stage(folder.train, "train", stage_inputs(recipe, inputs, invocation.arguments.deepspeed_config))
    if stage.is_done():
        if process.is_main:
            print(f"pretraining: already done ({folder.train}).")
        return
    join_group(process, recipe.training.process_group_timeout_s)
    if process.is_main:
        set_aside_finished(folder.train)
    record, config = open_run(recipe, folder, inputs, invocation.arguments.deepspeed_config, process)
    checkpoint = tell_all(latest_checkpoint(folder.train) if process.is_main else None)
    tracker = None
    if process.is_main:
        parameters = {**record.recipe, "precision": record.precision, "world_size": record.world_size, "inputs": record.inputs}
        tracker = Tracker(folder.root, key=record.tracking_key, name=recipe.name, parameters=parameters)
        tracker.start()
    engine = build_engine(recipe, inputs, config, process)
    # With a launcher, its whole tree is counted: the ranks of this machine and the launcher itself.
    root = os.getppid() if process.world_size > 1 else os.getpid()
    with MemorySampler(root) as memory:
        loop = TrainingLoop(
            engine,
            inputs.loader,
            recipe,
            lambda step: recipe.phases[inputs.plan.phase_at(step)[0]],
            process=process,
            folder=folder.train,
            description=describe_model(recipe, inputs, record),
            tracker=tracker,
            memory=memory,
        )
        result = loop.run(checkpoint, started=time.monotonic() - (time.time() - psutil.Process().create_time()))
    if tracker is not None:
        tracker.close("FINISHED" if result.finished else "KILLED")
        write_run_record(folder.train, with_mlflow_run(record, tracker.run_id))
        if result.finished:
            lines = JsonLines(folder.train / METRICS).read()
            about = summary(recipe, record, result, lines, parameter_count(engine))
            peak = max([memory.peak_bytes, *(line.get("peak_memory_bytes", 0) for line in lines)])
            stage.finish_in_place(about, loop.wall_s(), peak)
            print("\n".join(table(about, loop.wall_s(), peak, inputs)))
        else:
            print(f"pretraining: stopped and saved at step {result.steps:,}; run the same command again to continue.")
    barrier()
    leave_group()
    if not result.finished:
        sys.exit(STOPPED_EXIT_CODE)


def summary(recipe: Recipe, record: RunRecord, result: LoopResult, lines: list[dict[str, Any]], parameters: int) -> dict[str, Any]:
    """Return what the stage's record says of a finished training."""
    tokens_before = [0, *(line["tokens"] for line in lines)]
    shown_s = sum((line["tokens"] - before) / line["tokens_per_second"] for line, before in zip(lines, tokens_before, strict=False))
    last = result.last or {}
    return {
        "steps": result.steps,
        "skipped_steps": result.skipped_steps,
        "tokens": sum(result.tokens.values()),
        "tokens_by_language": result.tokens,
        "tokens_per_second": round(sum(result.tokens.values()) / max(shown_s, 1e-9), 1),
        "losses": {name: value for name, value in last.items() if name.startswith("loss")},
        "precision": record.precision,
        "world_size": record.world_size,
        "zero_stage": record.deepspeed["zero_optimization"]["stage"],
        "parameters": parameters,
        "mlflow_run_key": record.tracking_key,
        "phases": [phase.name for phase in recipe.phases],
    }


def table(about: dict[str, Any], wall_s: float, peak_bytes: int, inputs: TrainingInputs) -> list[str]:
    """Return the lines that a finished training shows."""
    total = max(about["tokens"], 1)
    lines = [f"{'language':<10} {'tokens seen':>12} {'share':>7}"]
    lines += [
        f"{name:<10} {about['tokens_by_language'][name]:>12,} {about['tokens_by_language'][name] / total:>7.1%}"
        for name in inputs.plan.languages
    ]
    losses = ", ".join(f"{name.removeprefix('loss/')} {value:.3f}" for name, value in about["losses"].items() if name.count("/") == 1)
    skipped = f", {about['skipped_steps']} skipped as not finite" if about["skipped_steps"] else ""
    lines.append(f"pretraining: {about['steps']:,} steps{skipped}, {about['tokens']:,} tokens, {about['tokens_per_second']:,.0f} tokens/s")
    lines.append(
        f"pretraining: {about['parameters']:,} parameters in {about['precision']} on {about['world_size']} ranks (ZeRO {about['zero_stage']}), "
        f"{wall_s:,.0f} s, {peak_bytes / 2**30:.1f} GiB; last losses {losses}"
    )
    return lines


if __name__ == "__main__":
    main()
