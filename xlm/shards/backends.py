"""Who does the tasks of a stage: this process, processes of this machine, or Ray Data on many machines.

A backend is given a *maker* that builds the function which does a task, so that every worker loads a vocabulary once, and
yields results as they come, each with the number of its task. What the tasks write does not depend on who does them.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeVar

import psutil

from xlm.errors import UserError
from xlm.runs.cores import usable_cores

Task = TypeVar("Task")
Result = TypeVar("Result")

MOST_WORKERS = 8
# A worker holds one shard's ids, its encoder's memory and the libraries.
WORKER_BYTES = 2 << 30
# Tasks that are handed out ahead, a worker: enough that none waits, few enough that results do not pile up.
_AHEAD = 2
# Workers that may die at a task on a cluster, where machines come and go.
_RAY_TRIES = 4


class Backend(Protocol):
    """Does tasks, in any order."""

    def map(self, maker: Callable[[], Callable[[Task], Result]], tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """Yield (number of the task, result) as results come; ``maker`` and tasks are pickled for workers.

        Raises UserError where a task does, and where a worker dies.
        """
        ...


def default_workers() -> int:
    """Return a worker for every core that this process may use, at most eight, fewer where memory is short."""
    cores = usable_cores()
    return max(1, min(cores, MOST_WORKERS, psutil.virtual_memory().available // WORKER_BYTES))


@dataclass(frozen=True)
class LocalBackend:
    """Processes of this machine; one worker is this process itself."""

    workers: int = 1

    def map(self, maker: Callable[[], Callable[[Task], Result]], tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """Yield results as they come; see `Backend.map`."""
        workers = min(self.workers, len(tasks))
        if workers <= 1:
            work = maker() if tasks else None
            for number, task in enumerate(tasks):
                assert work is not None
                yield number, work(task)
            return
        # Spawned, not forked: the parent has threads (progress, memory) and SentencePiece models.
        context = get_context("spawn")
        # Workers end when this pipe does: it is closed here where they are no longer wanted, and by the system where
        # this process is killed. Without it they would wait for tasks for ever.
        lifeline, hold = context.Pipe(duplex=False)
        pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(maker, lifeline))
        try:
            yield from _bounded(pool, tasks, workers * _AHEAD)
        except BrokenProcessPool:
            raise UserError(
                "a worker died before its shard was written (killed, or out of memory); run the same command again, "
                f"with fewer than --workers {workers} where memory is short."
            ) from None
        except BaseException:
            hold.close()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            hold.close()
            lifeline.close()


def _bounded(pool: ProcessPoolExecutor, tasks: Sequence[Task], ahead: int) -> Iterator[tuple[int, Any]]:
    waiting: dict[Future[Any], int] = {}
    remaining = iter(enumerate(tasks))
    while True:
        while len(waiting) < ahead and (upcoming := next(remaining, None)) is not None:
            number, task = upcoming
            with _interrupts_later():
                waiting[pool.submit(_do, task)] = number
        if not waiting:
            return
        done, _ = wait(waiting, return_when=FIRST_COMPLETED)
        for future in done:
            yield waiting.pop(future), future.result()


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Hold Ctrl-C back here, and in a process started meanwhile until it is ready: it would die with a page of traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_maker: Callable[[], Callable[[Any], Any]] | None = None


def _start_worker(maker: Callable[[], Callable[[Any], Any]], lifeline: Connection) -> None:
    global _maker
    # Ctrl-C ends a worker at once and silently; the parent says what happened.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with, args=(lifeline,), name="lifeline", daemon=True).start()
    _maker = maker


def _end_with(lifeline: Connection) -> None:
    connection.wait([lifeline])
    os._exit(1)


@cache
def _work() -> Callable[[Any], Any]:
    """Return what the maker makes; with the first task, since what goes wrong while a worker starts is not passed on."""
    assert _maker is not None
    return _maker()


def _do(task: Any) -> Any:  # noqa: ANN401
    return _work()(task)


@dataclass(frozen=True)
class RayBackend:
    """Tasks of Ray Data: on the cluster that ``RAY_ADDRESS`` names, else on this machine.

    Every machine needs this library and sees the corpus and the output folder under the same paths. The task of a
    lost machine is done by another one, but not for ever, as Ray would: a task may just be too large for its workers.
    """

    workers: int

    def map(self, maker: Callable[[], Callable[[Task], Result]], tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """Yield results as they come; see `Backend.map`."""
        if not tasks:
            return
        ray = _started_ray(self.workers)
        rows = [{"number": number, "task": pickle.dumps(task)} for number, task in enumerate(tasks)]
        workers = min(self.workers, len(tasks))
        begun = ray.remote(num_cpus=0)(_Begun).remote()
        # A block a task: blocks are what Ray Data deals out.
        dataset = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
            _do_row, fn_args=(pickle.dumps(maker), begun), compute=ray.data.TaskPoolStrategy(size=workers), num_cpus=1
        )
        for row in dataset.iter_rows():
            done, answer = pickle.loads(row["result"])
            if not done:
                raise UserError(answer)
            yield row["number"], answer


class _Begun:
    """Counts how often each task was begun; an actor, because a worker that died cannot tell."""

    def __init__(self) -> None:
        self._begun: Counter[int] = Counter()

    def count(self, number: int) -> int:
        self._begun[number] += 1
        return self._begun[number]


def _do_row(row: dict[str, Any], maker: bytes, begun: Any) -> dict[str, Any]:  # noqa: ANN401
    """Do a task; a user's mistake travels as a value, since Ray wraps exceptions."""
    import ray

    answer: tuple[bool, Any]
    if ray.get(begun.count.remote(row["number"])) > _RAY_TRIES:
        answer = (
            False,
            f"{_RAY_TRIES} workers of Ray died at the same shard (killed, or out of memory; Ray's logs say more); run the same "
            "command again, with fewer --workers where memory is short.",
        )
    else:
        try:
            answer = (True, _made(maker)(pickle.loads(row["task"])))
        except UserError as error:
            answer = (False, str(error))
    return {"number": row["number"], "result": pickle.dumps(answer)}


@lru_cache(maxsize=1)
def _made(maker: bytes) -> Callable[[Any], Any]:
    """Return what a maker makes, once a process: Ray gives a worker one task after the other."""
    work: Callable[[Any], Any] = pickle.loads(maker)()
    return work


def _started_ray(workers: int) -> Any:  # noqa: ANN401
    # Before the import: nothing is reported to anyone.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
        import ray.data
    except ImportError:
        raise UserError("--backend ray needs the package 'ray', which is not installed; pip install 'xlm[ray]'.") from None
    if not ray.is_initialized():
        cluster = os.environ.get("RAY_ADDRESS")
        size = {} if cluster else {"num_cpus": workers, "include_dashboard": False}
        ray.init(address=cluster, log_to_driver=False, logging_level="warning", **size)
    # Progress is this library's own.
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    return ray
