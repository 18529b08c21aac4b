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
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import psutil

from xlm.errors import exits_cleanly
from xlm.mixing.ledger import cap_sentences
from xlm.mixing.seen import unlike_plan
from xlm.runs.allocator import return_large_blocks
from xlm.runs.cli import Invocation, parse_invocation, recipe_parser
from xlm.runs.lock import only_writer
from xlm.runs.memory import MemorySampler
from xlm.runs.stage import Stage
from xlm.training.assembly import (
    TrainingInputs,
    build_engine,
    check_started,
    describe_model,
    open_run,
    parameter_count,
    read_inputs,
    reopen_finished,
    set_aside_finished,
    stage_inputs,
)
from xlm.training.checkpoint import FOLDER as CHECKPOINTS
from xlm.training.checkpoint import latest_checkpoint, missing_checkpoint, remove_partials
from xlm.training.deepspeed_config import read_deepspeed_file
from xlm.training.distributed import Process, bound_kernel_cache, main_does, set_threads
from xlm.training.drawn import drawn_metrics
from xlm.training.loop import LoopResult, TrainingLoop
from xlm.training.preflight import Preflight, check_room, try_network
from xlm.training.profiling import ProfiledSteps, StepProfiler
from xlm.training.roll_call import RollCall
from xlm.training.stopping import EXIT_CODES, StopRequests
from xlm.training.summary import finish_training
from xlm.training.tracked import close_tracker, ended_as_failed, send_what_mlflow_missed, start_tracker
from xlm.training.training_log import TrainingLog
from xlm.training.utilisation import Utilisation
from xlm.training.validation import Validation

# How often the processes whose memory is sampled are looked for: it takes milliseconds from a core that trains.
TREE_INTERVAL_S = 10.0
# How long a training that was asked to stop waits for MLflow: who asked does not wait long either, and all is saved.
STOPPED_CLOSE_TIMEOUT_S = 5.0


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
    read_deepspeed_file(deepspeed_config)  # and there
    set_threads(process)
    bound_kernel_cache()
    return_large_blocks()
    inputs = read_inputs(recipe, folder, process)
    stage = Stage(folder.train, "train", stage_inputs(recipe, inputs))
    if is_done(stage, recipe.total_steps):
        if process.is_main:
            print(f"pretraining: already done ({folder.train}).")
            send_what_mlflow_missed(recipe, folder, invocation.arguments.parent_run)
        return
    # A damaged record is found by every rank alike, before any waits for another.
    check_started(folder.train)
    # Before the group forms, so that a second command says this and not that its port is taken.
    with only_writer(folder.train, stage.name) if process.is_main else nullcontext():
        meet(roll_call, invocation, process, inputs)
        with StopRequests() as requests:
            result = train(invocation, process, inputs, stage, requests, roll_call)
    if not result.finished:
        sys.exit(EXIT_CODES[result.stopped_by])  # saved and ready to be started again


def meet(roll_call: RollCall, invocation: Invocation, process: Process, inputs: TrainingInputs) -> None:
    """Form the process group, if all ranks have the same and there is room for what comes."""
    recipe, folder = invocation.recipe, invocation.folder.root
    preflight = Preflight(recipe, inputs.fingerprints, invocation.arguments.deepspeed_config, folder, process)
    roll_call.meet(preflight.facts, recipe.training.process_group_timeout_s, preflight.compare)
    line = try_network(roll_call.members, process.device()) if process.world_size > 1 else None
    if line is not None:
        print(f"pretraining: {line}")


def is_done(stage: Stage, steps: int) -> bool:
    """Return whether training has finished for these inputs and its last checkpoint is really there."""
    return stage.is_done() and missing_checkpoint(stage.folder, steps) is None


def train(
    invocation: Invocation, process: Process, inputs: TrainingInputs, stage: Stage, requests: StopRequests, roll_call: RollCall
) -> LoopResult:
    """Train from the last checkpoint there is, to the last step or until asked to stop, and return how it ended; the group must exist."""
    recipe, folder, deepspeed_config = invocation.recipe, invocation.folder, invocation.arguments.deepspeed_config
    if process.is_main:
        if stage.is_done():
            reopen_finished(folder.train, recipe.total_steps)
        else:
            set_aside_finished(folder.train)
        remove_partials(folder.train / CHECKPOINTS, ignore_errors=True)  # what a kill left takes room
    record, config = open_run(recipe, folder, inputs, deepspeed_config, process)
    checkpoint = main_does(lambda: latest_checkpoint(folder.train), process.device())
    tracker = start_tracker(recipe, folder, record, invocation.arguments.parent_run) if process.is_main else None
    for sentence in cap_sentences(inputs.plan) if process.is_main else ():
        print(sentence)
    # With a launcher, its whole tree is counted: the launcher and the ranks of this machine.
    tree = os.getppid() if process.world_size > 1 else os.getpid()
    with ended_as_failed(tracker), MemorySampler(tree, tree_interval_s=TREE_INTERVAL_S) as memory:
        engine = build_engine(recipe, inputs, config, process)
        profiled = profiled_steps(invocation)
        section = recipe.training.validation
        validation = None if section is None else Validation.of(recipe, section, inputs.shards, inputs.vocabulary, engine, process)
        zero = config["zero_optimization"]
        check_room(roll_call.members, process, parameters=parameter_count(engine), zero=zero, folder=folder.root)
        log = None
        if process.is_main:
            phases = tuple(phase.name for phase in recipe.phases)
            drawn = drawn_metrics(recipe, inputs)
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
        result = loop.run(checkpoint, started=time.monotonic() - (time.time() - psutil.Process().create_time()))
    if tracker is not None and not result.finished:
        asked = signal.Signals(result.stopped_by).name
        print(f"pretraining: stopped by {asked}, saved at step {result.steps:,}; run the same command again to continue.", flush=True)
        close_tracker(tracker, "KILLED", folder, record, timeout_s=STOPPED_CLOSE_TIMEOUT_S)
    roll_call.part()  # before rank 0 waits for MLflow: longer, perhaps, than a collective may
    if tracker is not None and log is not None and result.finished:
        close_tracker(tracker, "FINISHED", folder, record)
        about = {"wall_s": log.wall_s(), "peak_bytes": memory.peak_bytes, "parameters": parameter_count(engine)}
        finish_training(stage, inputs.plan, record, result, **about)
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


if __name__ == "__main__":
    main()
