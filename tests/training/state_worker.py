"""Groups of ranks of different sizes, one after the other, that take up each other's checkpoints; argv: JSON list of groups, folder.

A group: {"world_size", "jobs"}. A job is a scenario of `engine_worker` with "name", and with "from" (the name of the job
whose checkpoint it takes up; else it starts anew), "save_after" (the step after which it saves and tells what the optimizer
holds). Rank 0 leaves `<name>.pt`. Ranks are forks of one process that has loaded the libraries, which takes longer than they do.
"""

import json
import multiprocessing
import os
import socket
import sys
from importlib import import_module
from pathlib import Path

import torch
import torch.distributed as dist
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
from engine_worker import make_engine, run_step, save

from xlm.training.checkpoint import latest_checkpoint, load_checkpoint
from xlm.training.distributed import Process, join_group, leave_group

MOMENTS = ("exp_avg", "exp_avg_sq", "momentum_buffer")


def held(engine):
    """What the optimizer holds of each parameter, whole, as DeepSpeed itself finds it; every rank must ask."""
    optimizer = engine.wrapped_optimizer
    parameters = dict(engine.objective.model.named_parameters())
    if engine.stage == 0:
        states = {name: optimizer.state.get(parameter, {}) for name, parameter in parameters.items()}
        return {name: {key: state[key].clone() for key in MOMENTS if key in state} for name, state in states.items()}
    if engine.stage < 3:  # DeepSpeed makes its index in the first step, before all groups have a state
        optimizer._hp_optimizer_states_linked = False
        optimizer._lazy_init_hp_params_optimizer_state()
    found = {name: {"weights": safe_get_full_fp32_param(parameter).clone()} for name, parameter in parameters.items()}
    for name, key in everyone((name, key) for name, parameter in parameters.items() for key in MOMENTS if has(engine, parameter, key)):
        found[name][key] = safe_get_full_optimizer_state(parameters[name], key).clone()
    return found


def has(engine, parameter, key):
    if engine.stage == 3:
        group = engine.wrapped_optimizer.grad_position[engine.wrapped_optimizer.get_param_id(parameter)][0]
        return key in engine.wrapped_optimizer.optimizer.state.get(engine.wrapped_optimizer.fp32_partitioned_groups_flat[group], {})
    return parameter._hp_mapping is not None and key in (parameter._hp_mapping.optim_fragment or {})


def everyone(found):
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, sorted(found))
    return sorted({one for of_rank in gathered for one in of_rank})


def steps_made(engine):
    inner = engine.wrapped_optimizer if engine.stage == 0 else engine.wrapped_optimizer.optimizer
    return sorted({int(state["step"]) for state in inner.state.values() if "step" in state})


def counters(engine):
    wrapped = engine.wrapped_engine
    return wrapped.global_steps, wrapped.skipped_steps, None if engine.loss_scale is None else engine.loss_scale.state()


def run_job(job, process, folder):
    engine = make_engine(job, process)
    told = {"losses": [], "norms": []}
    start = 0
    if "from" in job:
        start = load_checkpoint(engine, latest_checkpoint(folder / job["from"]))["step"]
        told |= {"held": held(engine), "step": steps_made(engine), "counters": counters(engine)}
        told["computed"] = {name: one.clone() for name, one in engine.objective.model.named_parameters()} if engine.stage < 3 else {}
        told["full"] = dict(engine.full_weights())
    for step in range(start, job["steps"] + 1):
        if job.get("save_after") == step:
            save(engine, process, job, step, folder / job["name"])
            told |= {"saved_held": held(engine), "saved_step": steps_made(engine), "saved_counters": counters(engine)}
            told["saved_full"] = dict(engine.full_weights())
        if step < job["steps"]:
            result = run_step(engine, process, job, step)
            told["losses"].append(engine.objective.statistics.take_window().loss)
            told["norms"].append(result.gradient_norm if result.applied else None)
    told["weights"] = dict(engine.full_weights())
    if process.is_main:
        torch.save(told, folder / f"{job['name']}.pt")


def run_rank(rank, world_size, port, jobs, folder):
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    process = Process.from_environment()
    join_group(process, timeout_s=300)
    for job in jobs:
        run_job(job, process, folder)
    leave_group()


def main():
    groups, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    # What the first engine of a process would load, seven seconds of it.
    import_module("deepspeed.runtime.zero.muon.muon_optimizer")
    torch.nn.utils.skip_init(torch.nn.Linear, 1, 1)
    context = multiprocessing.get_context("fork")
    for group in groups:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        world_size = group["world_size"]
        ranks = [context.Process(target=run_rank, args=(rank, world_size, port, group["jobs"], folder)) for rank in range(world_size)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        if any(rank.exitcode for rank in ranks):
            sys.exit(1)


if __name__ == "__main__":
    main()
