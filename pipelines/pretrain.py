"""Pretrain a recipe's model: shards/ + embeddings/ → train/. Killed anywhere, the same command goes on.

On one machine with two processes: ``deepspeed --num_accelerators 2 pipelines/pretrain.py --recipe FILE
--deepspeed_config FILE``; in one process: ``python pipelines/pretrain.py --recipe FILE --deepspeed_config FILE``.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import psutil

from xlm.errors import exits_cleanly
from xlm.mixing.data_plan import DataPlan
from xlm.mixing.ledger import RunningLedger, cap_sentences
from xlm.mixing.seen import Seen, seen_table, unlike_plan
from xlm.runs.allocator import return_large_blocks
from xlm.runs.cli import Invocation, parse_invocation, recipe_parser
from xlm.runs.lock import only_writer
from xlm.runs.memory import MemorySampler
from xlm.runs.stage import Stage
from xlm.tracking.json_lines import JsonLines
from xlm.tracking.run_card import run_card
from xlm.tracking.tracker import Tracker
from xlm.training.assembly import (
    TrainingInputs,
    build_engine,
    describe_model,
    open_run,
    parameter_count,
    read_inputs,
    reopen_finished,
    set_aside_finished,
    stage_inputs,
)
from xlm.training.checkpoint import latest_checkpoint, missing_checkpoint
from xlm.training.distributed import Process, barrier, bound_kernel_cache, leave_group, set_threads, tell_all
from xlm.training.loop import LoopResult, TrainingLoop
from xlm.training.meeting import Member
from xlm.training.preflight import Preflight, check_room, try_network
from xlm.training.profiling import ProfiledSteps, StepProfiler
from xlm.training.roll_call import RollCall
from xlm.training.run_record import RunRecord, read_run_record, with_mlflow_run, write_run_record
from xlm.training.stopping import EXIT_CODES, StopRequests
from xlm.training.summary import peak_memory, summary_lines, training_summary
from xlm.training.training_log import METRICS, TrainingLog
from xlm.training.utilisation import Utilisation
from xlm.training.validation import Validation

# How often the processes whose memory is sampled are looked for: it takes milliseconds from a core that trains.
TREE_INTERVAL_S = 10.0
# How long a training that failed waits for MLflow to hear of it.
FAILED_CLOSE_TIMEOUT_S = 10.0


@exits_cleanly
def main() -> None:
    """Train, or go on training, unless it is done."""
    parser = recipe_parser(__doc__ or "")
    parser.add_argument("--deepspeed_config", type=Path, required=True, metavar="FILE", help="ZeRO settings, JSON (deepspeed_configs/)")
    parser.add_argument("--parent-run", default=None, metavar="KEY", help="show this run below another in MLflow (set by sweep.py)")
    parser.add_argument("--profile", default=None, metavar="steps=10:15", help="write a trace of these steps of rank 0 to train/profile/")
    parser.add_argument("--local_rank", type=int, default=0, help="set by the launcher")
    process = Process.from_environment()
    with RollCall(process) as roll_call:
        pretrain(parse_invocation(parser), process, roll_call)


def pretrain(invocation: Invocation, process: Process, roll_call: RollCall) -> None:
    """Run the stage on this rank."""
    recipe, folder, deepspeed_config = invocation.recipe, invocation.folder, invocation.arguments.deepspeed_config
    profiled_steps(invocation)  # a mistake there is told at once
    set_threads(process)
    bound_kernel_cache()
    return_large_blocks()
    inputs = read_inputs(recipe, folder, process)
    stage = Stage(folder.train, "train", stage_inputs(recipe, inputs, deepspeed_config))
    if is_done(stage, recipe.total_steps):
        if process.is_main:
            print(f"pretraining: already done ({folder.train}).")
            send_what_mlflow_missed(invocation)
        return
    # A damaged record is found by every rank alike, before any waits for another.
    read_run_record(folder.train)
    # Before the group forms, so that a second command says this and not that its port is taken.
    with only_writer(folder.train, stage.name) if process.is_main else nullcontext():
        members = meet(roll_call, invocation, process, inputs)
        with StopRequests() as requests:
            result = train(invocation, process, inputs, stage, requests, members)
            barrier()
            leave_group()
    if not result.finished:
        sys.exit(EXIT_CODES[result.stopped_by])  # saved and ready to be started again


def meet(roll_call: RollCall, invocation: Invocation, process: Process, inputs: TrainingInputs) -> Sequence[Member]:
    """Form the process group, if all ranks have the same and there is room for what comes."""
    recipe, folder = invocation.recipe, invocation.folder.root
    preflight = Preflight(recipe, inputs.fingerprints, invocation.arguments.deepspeed_config, folder, process)
    members = roll_call.meet(preflight.facts, recipe.training.process_group_timeout_s, preflight.compare)
    line = try_network(members, process.device()) if process.world_size > 1 else None
    if line is not None:
        print(f"pretraining: {line}")
    return members


def is_done(stage: Stage, steps: int) -> bool:
    """Return whether training has finished for these inputs and its last checkpoint is really there."""
    return stage.is_done() and missing_checkpoint(stage.folder, steps) is None


def train(
    invocation: Invocation, process: Process, inputs: TrainingInputs, stage: Stage, requests: StopRequests, members: Sequence[Member]
) -> LoopResult:
    """Train from the last checkpoint there is, to the last step or until asked to stop, and return how it ended; the group must exist."""
    recipe, folder, deepspeed_config = invocation.recipe, invocation.folder, invocation.arguments.deepspeed_config
    if process.is_main:
        if stage.is_done():
            reopen_finished(folder.train, recipe.total_steps)
        else:
            set_aside_finished(folder.train)
    record, config = open_run(recipe, folder, inputs, deepspeed_config, process)
    checkpoint = tell_all(latest_checkpoint(folder.train) if process.is_main else None)
    tracker = start_tracker(invocation, record) if process.is_main else None
    for sentence in cap_sentences(inputs.plan) if process.is_main else ():
        print(sentence)
    engine = build_engine(recipe, inputs, config, process)
    profiled = profiled_steps(invocation)
    section = recipe.training.validation
    validation = None if section is None else Validation.of(recipe, section, inputs.shards, inputs.vocabulary, engine, process)
    check_room(members, process, parameters=parameter_count(engine), stage=engine.stage, folder=folder.root)
    # With a launcher, its whole tree is counted: the launcher and the ranks of this machine.
    with MemorySampler(os.getppid() if process.world_size > 1 else os.getpid(), tree_interval_s=TREE_INTERVAL_S) as memory:
        log = None
        if process.is_main:
            phases = tuple(phase.name for phase in recipe.phases)
            drawn = drawn_metrics(invocation, inputs)
            log = TrainingLog(folder.train, phases, recipe.total_steps, tracker=tracker, memory=memory, drawn=drawn)
        loop = TrainingLoop(
            engine,
            inputs.loader,
            recipe,
            lambda step: inputs.plan.phase_at(step)[0],
            process=process,
            folder=folder.train,
            description=describe_model(recipe, inputs, record),
            log=log,
            unlike_plan=partial(unlike_plan, inputs.plan),
            stop_asked=requests.asked,
            validation=validation,
            utilisation=Utilisation(recipe.model, inputs.vocabulary.size, process.device(), record.precision),
            show_batch=partial(show_batch_command, invocation),
            profiler=StepProfiler(profiled, folder.train) if profiled is not None and process.is_main else None,
        )
        with ended_as_failed(tracker):
            result = loop.run(checkpoint, started=time.monotonic() - (time.time() - psutil.Process().create_time()))
    if tracker is not None and log is not None:
        tracker.close("FINISHED" if result.finished else "KILLED")
        write_run_record(folder.train, with_mlflow_run(record, tracker.run_id, complete=tracker.is_complete))
        if result.finished:
            finish(stage, inputs.plan, record, result, log.wall_s(), memory.peak_bytes, parameter_count(engine))
        else:
            asked = signal.Signals(result.stopped_by).name
            print(f"pretraining: stopped by {asked}, saved at step {result.steps:,}; run the same command again to continue.")
    return result


def profiled_steps(invocation: Invocation) -> ProfiledSteps | None:
    """Return the steps to profile, None where nobody asked."""
    asked = invocation.arguments.profile
    return None if asked is None else ProfiledSteps.parse(asked, invocation.recipe.total_steps)


def show_batch_command(invocation: Invocation, step: int) -> str:
    """Return the command that prints the batch of a step of this run."""
    arguments = invocation.arguments
    changes = [part for change in arguments.set for part in ("--set", change)]
    folder = [] if arguments.run_dir is None else ["--run-dir", str(arguments.run_dir)]
    recipe = ["--recipe", str(invocation.recipe_path)]
    return shlex.join(["python", "pipelines/show_batch.py", *recipe, *changes, *folder, "--step", str(step)])


def drawn_metrics(invocation: Invocation, inputs: TrainingInputs) -> Callable[[int, Seen], Mapping[str, float]]:
    """Return what is logged of the data: the ledger, and what this process fetched of shards that lie elsewhere."""
    ledger = RunningLedger(inputs.plan)
    recipe = invocation.recipe
    # Loader workers fetch for themselves; zeros of a process that fetches nothing would say something else.
    fetches_here = recipe.shards.storage is not None and recipe.training.loader.workers == 0

    def metrics(step: int, seen: Seen) -> Mapping[str, float]:
        return {**ledger.metrics(step, seen), **(inputs.store.statistics().metrics() if fetches_here else {})}

    return metrics


def start_tracker(invocation: Invocation, record: RunRecord) -> Tracker:
    """Open the run's MLflow run in the background."""
    recipe, root = invocation.recipe, invocation.folder.root
    tracker = Tracker(
        root,
        key=record.tracking_key,
        name=root.resolve().name,
        parameters={**record.recipe, "precision": record.precision, "world_size": record.world_size, "inputs": record.inputs},
        parent=invocation.arguments.parent_run,
        card=partial(
            run_card, root, recipe=recipe.model_dump(mode="json"), manifest=recipe.corpora.manifest, deepspeed=dict(record.deepspeed)
        ),
        lines=JsonLines(invocation.folder.train / METRICS),
        with_system_metrics=True,
    )
    tracker.start()
    return tracker


@contextmanager
def ended_as_failed(tracker: Tracker | None) -> Iterator[None]:
    """Where training fails, let its MLflow run say so; it goes on when training does."""
    try:
        yield
    except BaseException:
        if tracker is not None:
            tracker.close("FAILED", timeout_s=FAILED_CLOSE_TIMEOUT_S)
        raise


def send_what_mlflow_missed(invocation: Invocation) -> None:
    """Of a finished training, send what a server that did not answer at its end still lacks."""
    record = read_run_record(invocation.folder.train)
    if record is None or record.mlflow_complete:
        return
    tracker = start_tracker(invocation, record)
    tracker.resume()
    tracker.close("FINISHED")
    write_run_record(invocation.folder.train, with_mlflow_run(record, tracker.run_id, complete=tracker.is_complete))


def finish(stage: Stage, plan: DataPlan, record: RunRecord, result: LoopResult, wall_s: float, peak_bytes: int, parameters: int) -> None:
    """Write the stage's record and show the summary."""
    lines = JsonLines(stage.folder / METRICS).read()
    summary = training_summary(record, result, lines, parameters) | {"seen": seen_table(plan, result.steps, result.seen)}
    peak_bytes = peak_memory(lines, peak_bytes)
    stage.finish_in_place(summary, wall_s, peak_bytes)
    print("\n".join(summary_lines(summary, wall_s, peak_bytes)))


if __name__ == "__main__":
    main()
