"""Steps built ahead by processes, dealt to them in turn and handed over in order.

A worker that dies is an error with its name, its signal and the step, at once: the end of every worker is
waited for together with the next step. Workers ignore Ctrl-C and SIGTERM, which are for their rank to
answer, and end when it lets go of them or is gone itself.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import recv_handle
from pathlib import Path

from xlm.batching.packed_batch import PackedBatch
from xlm.batching.shared_batches import receive
from xlm.batching.worker_process import BUILT, REFUSED, StepBuilder
from xlm.errors import NotSupportedYetError, UserError

_PROGRAM = "xlm.batching.worker_process"
_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class _Worker:
    name: str
    process: subprocess.Popen[bytes]
    ended: int  # a descriptor that is ready once the process has ended
    channel: Connection


def built_by_workers(
    builder: StepBuilder, steps: range, *, workers: int, ahead: int
) -> Generator[tuple[int, list[PackedBatch]], None, None]:
    """Yield (step, micro-batches) in order, each worker up to ``ahead`` steps before what was asked for.

    Raises UserError for a worker that died, and at its step what went wrong while a worker built it.
    """
    if not hasattr(os, "memfd_create") or not hasattr(os, "pidfd_open"):
        raise NotSupportedYetError("training.loader.workers above 0 outside Linux", "set it to 0")
    count = min(workers, len(steps))
    with ExitStack() as running:
        # One pickle for all: planning a run with thousands of corpora again would take longer than reading it.
        pickled = pickle.dumps(builder)
        crew = [running.enter_context(_started(f"loader worker {number}")) for number in range(count)]
        for number, worker in enumerate(crew):
            with _death_is_a_sentence(worker, steps[number]):
                worker.channel.send_bytes(pickled)
                worker.channel.send(steps[number::count])
                worker.channel.send(ahead)
        del pickled
        for place, step in enumerate(steps):
            worker = crew[place % count]
            yield step, _next_of(worker, crew, step)
            with _death_is_a_sentence(worker, step):
                worker.channel.send(1)


@contextmanager
def _started(name: str) -> Iterator[_Worker]:
    """Start a worker, and end it."""
    own, others = socket.socketpair()
    with others:
        process = subprocess.Popen(
            [sys.executable, "-m", _PROGRAM, str(others.fileno()), str(os.getpid())],
            pass_fds=[others.fileno()],
            stdin=subprocess.DEVNULL,
            # The same modules, one thread (workers are the parallelism), and no GPU: batches are made on the CPU.
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
                "OMP_NUM_THREADS": "1",
                "CUDA_VISIBLE_DEVICES": "",
            },
            start_new_session=True,
        )
    channel, ended = Connection(own.detach()), os.pidfd_open(process.pid)
    try:
        yield _Worker(name, process, ended, channel)
    finally:
        channel.close()
        process.kill()  # it holds nothing that could be left half done
        process.wait()
        os.close(ended)


def _next_of(worker: _Worker, crew: list[_Worker], step: int) -> list[PackedBatch]:
    """Return what ``worker`` built for ``step``, its next one; the death of any worker is an error."""
    ready = wait([worker.channel, *(one.ended for one in crew)])
    for one in crew:
        if one.ended in ready:
            raise UserError(_obituary(one, step))
    with _death_is_a_sentence(worker, step):
        kind, text = worker.channel.recv()
        descriptor = recv_handle(worker.channel) if kind == BUILT else None
    if descriptor is not None:
        return receive(descriptor, text)
    if kind == REFUSED:
        raise UserError(text)
    raise RuntimeError(f"{worker.name} failed at step {step}:\n{text}")


@contextmanager
def _death_is_a_sentence(worker: _Worker, step: int) -> Iterator[None]:
    """Say of a worker whose end of the channel is gone how it ended."""
    try:
        yield
    except (EOFError, OSError, RuntimeError):  # RuntimeError: a descriptor that never came
        wait([worker.ended], timeout=_GRACE_S)
        raise UserError(_obituary(worker, step)) from None


def _obituary(worker: _Worker, step: int) -> str:
    code = worker.process.poll()
    how = f"was ended by {signal.Signals(-code).name}" if code is not None and code < 0 else f"ended with exit code {code}"
    return (
        f"{worker.name} {how} before it gave step {step}; if the machine ran out of memory, lower training.loader.workers or "
        "training.loader.steps_ahead, then run the same command again to continue."
    )
