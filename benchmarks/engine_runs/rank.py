"""One rank of a run: ``python -m engine_runs.rank JOB SHARDS FOLDER``; rank 0 writes what it found to FOLDER/found.json.

JOB is JSON: {"loop": LoopCase} or {"losses": LossCase, "stage": 2}. In a loop's run bare steps and the whole loop take turns
on one engine, block by block over the same batches: whatever else the machine does meets both. A bare step is forward,
backward and optimizer step on micro-batches that are ready in memory, and counts nothing. A block of the whole loop has a
record in metrics.jsonl and MLflow.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import torch
from data import Pieces
from engine_runs.cases import VOCABULARY_SIZE, LoopCase, LossCase

from xlm.batching.loader import BatchLoader
from xlm.batching.packed_batch import PackedBatch
from xlm.config.recipe import Recipe
from xlm.mixing.data_plan import DataPlan
from xlm.mixing.ledger import RunningLedger
from xlm.mixing.seen import unlike_plan
from xlm.model.pretraining import PretrainingModel
from xlm.runs.allocator import return_large_blocks
from xlm.runs.memory import MemorySampler
from xlm.shards.reader import ShardSet
from xlm.tracking.json_lines import JsonLines
from xlm.tracking.tracker import Tracker
from xlm.training.deepspeed_config import load_deepspeed_config
from xlm.training.distributed import Process, bound_kernel_cache, join_group, leave_group, set_threads
from xlm.training.engine import TrainingEngine
from xlm.training.loop import TrainingLoop
from xlm.training.objectives import PretrainingObjective
from xlm.training.precision import resolve_precision
from xlm.training.saving import save_checkpoint
from xlm.training.statistics import LossStatistics
from xlm.training.step_runner import StepRunner
from xlm.training.training_log import METRICS, TrainingLog
from xlm.training.utilisation import Utilisation
from xlm.training.weights import ModelDescription


class Run:
    """A recipe over the benchmark's shards: plan, loader and engine of this rank."""

    def __init__(self, recipe: Recipe, shards: Path, stage: int, process: Process) -> None:
        self.recipe, self.process = recipe, process
        opened = ShardSet(shards, "made")
        self.plan = DataPlan(recipe, opened.index)
        tokens = recipe.training.micro_batch_tokens
        where = {"rank": process.rank, "world_size": process.world_size}
        self.loader = BatchLoader(self.plan, opened, Pieces(), recipe.seed, **where, micro_batch_tokens=tokens)
        self.precision = resolve_precision(recipe.training.precision, process.device())
        model = PretrainingModel(recipe.model, VOCABULARY_SIZE, len(self.plan.languages), seed=recipe.seed)
        model.tie_weights()
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        statistics = LossStatistics(("only",), self.plan.languages, process.device())
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "deepspeed.json"
            path.write_text(json.dumps({"zero_optimization": {"stage": stage}}), encoding="utf-8")
            config = load_deepspeed_config(
                path, recipe.training, self.precision, micro_steps=self.loader.micro_steps, world_size=process.world_size
            )
        objective = PretrainingObjective(model, recipe.training, statistics)
        self.engine = TrainingEngine(objective, config, recipe.training.optimizer, recipe.training.loss_scale)

    def description(self, step: int) -> ModelDescription:
        """Return what a checkpoint says of the model."""
        return ModelDescription(self.recipe.model.model_dump(mode="json"), VOCABULARY_SIZE, "made", self.plan.languages, step, "-", "-")


class Clock:
    """Wall and processor seconds of this rank since the start."""

    def __init__(self) -> None:
        self._wall, self._processor = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        """Return both."""
        return time.perf_counter() - self._wall, time.process_time() - self._processor


class Uncounted:
    """Statistics that a bare step has none of."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return lambda *_: None


class TakingTurns:
    """The loop's source of batches; between its blocks it takes bare steps with the same engine over the same batches."""

    def __init__(self, run: Run, case: LoopCase) -> None:
        self._run, self._case = run, case
        self._steps = StepRunner(run.engine, run.recipe, lambda step: 0, run.process)
        self.whole: list[tuple[float, float]] = []  # wall and processor seconds of each block
        self.bare: list[tuple[float, float]] = []

    def iterate(self, start_step: int, stop_step: int) -> Generator[tuple[int, Sequence[PackedBatch]], None, None]:
        """Yield the loader's batches; who goes first changes from block to block."""
        with closing(self._run.loader.iterate(start_step, stop_step)) as batches:
            for block in range(self._case.blocks):
                steps = range(block * self._case.block_steps, (block + 1) * self._case.block_steps)
                if block % 2 == 0:
                    self._take_bare_steps(steps)
                clock = Clock()
                for _ in steps:
                    yield next(batches)
                self.whole.append(clock.read())  # the loop has asked for the next step, so all is done that the last one brought
                if block % 2 == 1:
                    self._take_bare_steps(steps)
            yield from batches

    def _take_bare_steps(self, steps: range) -> None:
        engine, objective = self._run.engine, self._run.engine.objective
        ready = []
        for step in steps:
            fetched = self._steps.fetch(step, _one(step, self._run.loader))
            ready.append((fetched.micro_batches, self._steps.agree(step, fetched).context))
        counted, objective.statistics = objective.statistics, Uncounted()  # type: ignore[assignment]
        clock = Clock()
        for micro_batches, context in ready:
            for number, batch in enumerate(micro_batches):
                engine.accumulate(batch.to(engine.device), context, with_pairs=False, last=number == len(micro_batches) - 1)
            engine.step(1e-3)
        self.bare.append(clock.read())
        objective.statistics = counted


def _one(step: int, loader: BatchLoader) -> Generator[tuple[int, Sequence[PackedBatch]], None, None]:
    yield step, loader.batch(step)


def loop_figures(run: Run, case: LoopCase, folder: Path) -> dict[str, Any]:
    """Train with the whole loop and bare steps in turns; return the seconds of each block but the first, and of a checkpoint."""
    turns, main = TakingTurns(run, case), run.process.is_main
    lines = JsonLines(folder / METRICS)
    tracker = Tracker(folder, key="engine", name=case.name, parameters={"case": case.name}, lines=lines) if main else None
    if tracker is not None:
        tracker.start()
        tracker.flush()  # MLflow's modules are loaded meanwhile, which is no part of a step
    utilisation = Utilisation(run.recipe.model, VOCABULARY_SIZE, run.process.device(), run.precision)
    with MemorySampler(os.getpid(), tree_interval_s=10.0) as memory:
        ledger = RunningLedger(run.plan)
        log = TrainingLog(folder, ("only",), run.recipe.total_steps, tracker=tracker, memory=memory, drawn=ledger.metrics) if main else None
        loop = TrainingLoop(
            run.engine,
            turns,
            run.recipe,
            lambda step: 0,
            process=run.process,
            folder=folder,
            description=run.description(0),
            log=log,
            unlike_plan=partial(unlike_plan, run.plan),
            utilisation=utilisation,
        )
        loop.run(None)
        clock = Clock()
        save_checkpoint(run.engine, folder / "again", run.process, run.description(1), {"step": 1}, 1)
        save_s, save_cpu_s = clock.read()
    if tracker is not None:
        tracker.close()
    return {
        "parameters": run.parameters,
        "precision": run.precision,
        "micro_steps": run.loader.micro_steps,
        "bare_s": [wall for wall, _ in turns.bare[1:]],
        "whole_s": [wall for wall, _ in turns.whole[1:]],
        "bare_cpu_s": [processor for _, processor in turns.bare[1:]],
        "whole_cpu_s": [processor for _, processor in turns.whole[1:]],
        "save_s": save_s,
        "save_cpu_s": save_cpu_s,
    }


def losses(run: Run) -> list[float]:
    """Train to the last step and return each step's loss, over all ranks on rank 0."""
    steps = StepRunner(run.engine, run.recipe, lambda step: 0, run.process)
    statistics = run.engine.objective.statistics
    found = []
    with closing(run.loader.iterate()) as batches:
        for step in range(run.recipe.total_steps):
            fetched = steps.fetch(step, batches)
            steps.train(step, fetched.micro_batches, steps.agree(step, fetched).context)
            statistics.reduce()
            found.append(statistics.take_window().loss)
    return [loss for loss in found if loss is not None]


def main() -> None:
    """Do the job."""
    job, shards, folder = json.loads(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    process = Process.from_environment()
    set_threads(process)
    bound_kernel_cache()
    return_large_blocks()
    join_group(process, timeout_s=600)
    torch.manual_seed(0)
    if "loop" in job:
        case = LoopCase(**job["loop"])
        found: Any = loop_figures(Run(case.recipe(), shards, case.stage, process), case, folder)
    else:
        found = losses(Run(LossCase(**job["losses"]).recipe(), shards, job["stage"], process))
    if process.is_main:
        (folder / "found.json").write_text(json.dumps(found), encoding="utf-8")
    leave_group()


if __name__ == "__main__":
    main()
