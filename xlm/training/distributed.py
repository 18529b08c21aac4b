"""Which process this is among those that train together, and the small things they tell each other."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]

from xlm.errors import UserError, refused_by_system

Told = TypeVar("Told")
# No rank waits for another's disk in a collective: that would run into the group's timeout.
PATIENCE_S = 1.0
# NCCL's watchdog ends a process by SIGABRT, without a word; signs of life, which say who is gone, come first.
NCCL_GRACE_S = 30
_WORKING, _DONE, _FAILED = range(3)


@dataclass(frozen=True)
class Process:
    """A rank, as the launcher's environment says; a plain start is rank 0 of 1."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int

    @staticmethod
    def from_environment() -> Process:
        """Read RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE (LOCAL_SIZE is DeepSpeed's name for it)."""
        world_size = int(os.environ.get("WORLD_SIZE", "1"))
        local = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("LOCAL_SIZE") or str(world_size)
        return Process(int(os.environ.get("RANK", "0")), world_size, int(os.environ.get("LOCAL_RANK", "0")), int(local))

    @property
    def spans_hosts(self) -> bool:
        """Whether there are ranks on other hosts."""
        return self.world_size > self.local_world_size

    @property
    def is_main(self) -> bool:
        """Whether this is the rank that writes and speaks."""
        return self.rank == 0

    def device(self) -> torch.device:
        """Return the accelerator of this local rank, or the CPU."""
        return torch.device("cuda", self.local_rank) if torch.cuda.is_available() else torch.device("cpu")


def set_threads(process: Process) -> int:
    """Give each local rank its share of the cores, unless OMP_NUM_THREADS says otherwise; return the number."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // process.local_world_size))
    return torch.get_num_threads()


def bound_kernel_cache() -> None:
    """Keep few compiled CPU kernels, unless ONEDNN_PRIMITIVE_CACHE_CAPACITY says how many.

    oneDNN caches a kernel with its buffers for each of the last 1,024 shapes, and packed batches hardly ever
    repeat a shape from one step to the next. 128 hold one step's: the quickstart's ranks then stay at 2 GB
    instead of growing past 3.5 GB, at the same speed.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")


def join_group(process: Process, timeout_s: int, store: Store | None = None) -> None:
    """Form the process group: gloo on CPUs, NCCL on GPUs; a silent rank is noticed after ``timeout_s``.

    Ranks find each other by ``store``, or without one at MASTER_ADDR and MASTER_PORT.
    """
    if dist.is_initialized():
        return
    os.environ.update(
        RANK=str(process.rank),
        WORLD_SIZE=str(process.world_size),
        LOCAL_RANK=str(process.local_rank),
    )
    if process.world_size == 1:
        # Nobody else joins: any free port will do.
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(_free_port())
    backend = "gloo"
    if process.device().type == "cuda":
        torch.cuda.set_device(process.local_rank)
        backend = "nccl"
    timeout = timedelta(seconds=timeout_s + (NCCL_GRACE_S if backend == "nccl" else 0))
    if store is None:
        dist.init_process_group(backend, timeout=timeout)
    else:
        dist.init_process_group(backend, timeout=timeout, store=store, rank=process.rank, world_size=process.world_size)


def leave_group() -> None:
    """Leave the process group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def tell_all(value: Told, source: int = 0) -> Told:
    """Return the value of rank ``source`` on every rank; other ranks' arguments are ignored."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=source)
    return box[0]


def refused(problem: Exception | None) -> Exception | None:
    """Return what the system refused (a full disk, a folder that cannot be written) as a UserError; other problems as they are."""
    sentence = refused_by_system(problem.errno, problem.filename) if isinstance(problem, OSError) else None
    return problem if sentence is None else UserError(sentence)


def raise_everywhere(problem: Exception | None, rank: int) -> NoReturn:
    """Raise on every rank what went wrong on ``rank``, in the same words and with its host; only that rank has its traceback."""
    if problem is not None and (not dist.is_initialized() or dist.get_world_size() == 1):
        raise problem
    problem = refused(problem)
    told = str(problem) if isinstance(problem, UserError) else f"{type(problem).__name__}: {problem}"
    users, text, host = tell_all((isinstance(problem, UserError), told, socket.gethostname()), rank)
    who = f"{host} (rank {rank})" if Process.from_environment().spans_hosts else f"rank {rank}"
    sentence = f"{who}: {text}"
    raise (UserError(sentence) if users else RuntimeError(sentence)) from problem


def main_does(work: Callable[[], Told], device: torch.device) -> Told:
    """Have rank 0 do ``work`` and return on every rank what came of it; it may take longer than a collective may wait.

    Every rank must call this; what goes wrong on rank 0 is raised on all.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return work()
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work) if dist.get_rank() == 0 else None
        state = _WORKING
        while state == _WORKING:
            if working is not None and wait([working], PATIENCE_S).done:
                state = _DONE if working.exception() is None else _FAILED
            state = gather_numbers([state], device)[0][0]
    if state == _FAILED:
        problem = None if working is None else working.exception()
        raise_everywhere(problem if isinstance(problem, Exception) else None, 0)
    return tell_all(None if working is None else working.result())  # type: ignore[return-value]


def gather_numbers(values: list[int], device: torch.device) -> list[list[int]]:
    """Return every rank's list of integers, by rank; all lists have the same length."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return [values]
    own = torch.tensor(values, dtype=torch.int64, device=device)
    everyone = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, own)
    gathered: list[list[int]] = torch.stack(everyone).tolist()  # one copy from the device, however many ranks
    return gathered


def barrier() -> None:
    """Wait until every rank is here."""
    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.barrier()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
