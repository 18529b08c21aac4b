"""What the whole training loop costs beside its engine, and whether ZeRO trains as plain PyTorch does.

    python benchmarks/engine.py             everything (twenty minutes on two idle cores)
    python benchmarks/engine.py --quick     small models: does it run

loop      bare step time over whole-loop step time, worst of a model of about 10M and one of about 100M parameters, in one
          process and in two: at least .95 is asked for. Bare is forward, backward and optimizer step of the very same
          engine (ZeRO 2) on micro-batches that lie ready in memory; whole is `TrainingLoop` with loader, agreement of
          ranks, statistics, metrics.jsonl, MLflow (sqlite) and a console line every block of steps, plus a
          synchronous checkpoint's time over the 500 steps that lie between two by default; validation and profiler are off.
          Blocks of both take turns over the same batches, and the figure is the median of the blocks' ratios. The same in processor
          time (rank 0, all threads) is `loop_processor_time`, which other work on the machine disturbs less, but which does not
          count waiting.
losses    of two ranks at ZeRO 1, 2 and 3 in fp32 against one process of plain PyTorch with the same global batches: relative
          difference over the first 5 steps (at most 1e-5), and over 50 against 3 times what permuting the reference's own
          micro-batches causes. Raw figures; a larger one is an error, and nothing is written.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine_runs.cases import CHECKPOINT_EVERY_STEPS, RANKS, LoopCase, LossCase, write_shards
from engine_runs.reference import permuted, reference_losses
from results import write_results

FOLDER = Path(__file__).resolve().parent
CASES = (
    LoopCase("10M", 256, 4, 4, tokens_per_step=4_096, micro_batch_tokens=1_024, block_steps=10, blocks=4),
    LoopCase("100M", 768, 12, 12, tokens_per_step=1_024, micro_batch_tokens=512, block_steps=4, blocks=3),
)
QUICK = (LoopCase("quick", 64, 2, 2, tokens_per_step=1_024, micro_batch_tokens=512, block_steps=3, blocks=3),)
STAGES = (1, 2, 3)
# Single orders lie between 2.8e-8 and 4.2e-8 apart from the reference: with a few, the largest is a matter of luck.
PERMUTATIONS = 10
FIRST_STEPS, FIRST_MOST = 5, 1e-5
SPREAD_MOST = 3.0
LEAST = 0.95


def run_ranks(job: dict[str, Any], shards: Path, world_size: int) -> Any:  # noqa: ANN401
    """Do a job on so many ranks of this machine and return what rank 0 found; raises RuntimeError where one fails."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, len(os.sched_getaffinity(0)) // world_size))
    with tempfile.TemporaryDirectory() as name:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-m", "engine_runs.rank", json.dumps(job), str(shards), name],
                cwd=FOLDER,
                env={
                    **os.environ,
                    **{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1"},
                    **{"MASTER_PORT": str(port), "OMP_NUM_THREADS": threads, "OMP_WAIT_POLICY": "PASSIVE"},
                },
            )
            for rank in range(world_size)
        ]
        codes = [rank.wait() for rank in ranks]
        if any(codes):
            raise RuntimeError(f"a rank of {job} failed (exit codes {codes}); its messages are above")
        return json.loads((Path(name) / "found.json").read_text(encoding="utf-8"))


def loop_figures(found: dict[str, Any], case: LoopCase) -> dict[str, Any]:
    """Add to the seconds of blocks their ratios, a checkpoint's share in them."""
    steps = case.block_steps
    ratios = {
        name: [
            bare / (whole + steps * found[f"save{part}_s"] / CHECKPOINT_EVERY_STEPS)
            for bare, whole in zip(found[f"bare{part}_s"], found[f"whole{part}_s"], strict=True)
        ]
        for name, part in (("ratios", ""), ("processor_ratios", "_cpu"))
    }
    return {**found, **ratios, "steps_of_a_block": steps, "loop": statistics.median(ratios["ratios"])} | {
        "loop_processor_time": statistics.median(ratios["processor_ratios"])
    }


def measure_loops(cases: tuple[LoopCase, ...], shards: Path) -> dict[str, dict[str, Any]]:
    """Measure every case in one process and in two; a line each."""
    raw: dict[str, dict[str, Any]] = {}
    for case in cases:
        for world_size in (1, 2):
            label = f"{case.name}_{world_size}_rank{'s' if world_size > 1 else ''}"
            raw[label] = loop_figures(run_ranks({"loop": asdict(case)}, shards, world_size), case)
            figures = raw[label]
            bare, whole = (1000 * statistics.median(figures[name]) / case.block_steps for name in ("bare_s", "whole_s"))
            print(
                f"{label:<14} {figures['parameters']:>12,} parameters, {figures['precision']}: bare {bare:8.1f} ms, whole {whole:8.1f} ms, "
                f"checkpoint {figures['save_s']:.1f} s; loop {figures['loop']:.3f}, in processor time {figures['loop_processor_time']:.3f}",
                flush=True,
            )
    return raw


def differences(found: list[float], wanted: list[float]) -> list[float]:
    """Return the relative difference of each step's loss."""
    return [abs(one - other) / abs(other) for one, other in zip(found, wanted, strict=True)]


def loss_figures(losses: dict[int, list[float]], reference: list[float], orders: list[list[float]]) -> dict[str, Any]:
    """Compare losses by stage, and those of other orders of micro-batches, with the reference's."""
    spread = max(max(differences(order, reference)) for order in orders)
    by_stage = {str(stage): differences(found, reference) for stage, found in losses.items()}
    return {
        "first": {stage: max(found[:FIRST_STEPS]) for stage, found in by_stage.items()},
        "all": {stage: max(found) for stage, found in by_stage.items()},
        "permuted": spread,
        "steps": len(reference),
    }


def disagreement(figures: dict[str, Any]) -> str | None:
    """Return a sentence where losses differ by more than they may."""
    for stage, first in figures["first"].items():
        if not first <= FIRST_MOST:
            return f"ZeRO {stage} differs by {first:.1e} in the first {FIRST_STEPS} steps; at most {FIRST_MOST:.0e} was asked for"
        if not figures["all"][stage] <= SPREAD_MOST * figures["permuted"]:
            return (
                f"ZeRO {stage} differs by {figures['all'][stage]:.1e} over {figures['steps']} steps, more than {SPREAD_MOST:g} times the "
                f"{figures['permuted']:.1e} of permuted micro-batches"
            )
    return None


def measure_losses(case: LossCase, shards: Path) -> dict[str, Any]:
    """Train at every stage and in plain PyTorch, and print how far apart they are."""
    reference = reference_losses(case, shards)
    orders = [reference_losses(case, shards, permuted(number)) for number in range(PERMUTATIONS)]
    by_stage = {stage: run_ranks({"losses": asdict(case), "stage": stage}, shards, RANKS) for stage in STAGES}
    figures = loss_figures(by_stage, reference, orders)
    for stage in figures["first"]:
        print(
            f"ZeRO {stage} against plain PyTorch: {figures['first'][stage]:.1e} over {FIRST_STEPS} steps, "
            f"{figures['all'][stage]:.1e} over {figures['steps']} (permuted micro-batches: {figures['permuted']:.1e})",
            flush=True,
        )
    return figures


def main() -> None:
    """Measure and write the results; a quick run, or a part, only prints them."""
    parser = argparse.ArgumentParser(description="The training loop beside its engine, and ZeRO beside plain PyTorch.")
    parser.add_argument("--quick", action="store_true", help="small models; nothing is written")
    parser.add_argument("--only", choices=("loop", "losses"), help="one part; nothing is written")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        shards = Path(name)
        write_shards(shards)
        losses = None if options.only == "loop" else measure_losses(LossCase(steps=8) if options.quick else LossCase(), shards)
        problem = None if losses is None else disagreement(losses)
        if problem is not None:
            raise RuntimeError(f"nothing is written: {problem}")
        loops = {} if options.only == "losses" else measure_loops(QUICK if options.quick else CASES, shards)
    if loops:
        ratios = {name: min(figures[name] for figures in loops.values()) for name in ("loop", "loop_processor_time")}
        print(f"loop {ratios['loop']:.3f} (at least {LEAST} is asked for), in processor time {ratios['loop_processor_time']:.3f}")
        if losses is not None and not options.quick:
            write_results("engine", ratios, {"loops": loops, "losses": losses})


if __name__ == "__main__":
    main()
