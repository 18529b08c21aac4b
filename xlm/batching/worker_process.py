"""A loader worker: a process that builds every n-th step of one rank, and ends when its rank is gone.

Started by `workers.py` as a program of its own, not as a fork: a fork copies the locks of tokenizer and torch
threads without the threads. It waits for permission before each step, so that few steps lie ahead.
"""

from __future__ import annotations

import errno
import os
import pickle
import signal
import sys
import time
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import send_handle
from threading import Thread
from typing import Protocol

from xlm.batching.packed_batch import PackedBatch
from xlm.batching.shared_batches import share
from xlm.errors import UserError

_RETRY_S = 0.01
# What a worker says of a step: that its batches follow, a sentence for the user, or the traceback of a bug.
BUILT, REFUSED, BROKEN = b"built", b"refused", b"broken"


class StepBuilder(Protocol):
    """Builds one rank's micro-batches of any step; it can be pickled."""

    def batch(self, step: int) -> list[PackedBatch]:
        """Return the micro-batches of a step."""


def main(descriptor: int, parent: int) -> None:
    """Serve the rank at the other end of the socket ``descriptor``, whose process id is ``parent``."""
    # When to stop is the rank's decision: it may want to save first.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    Thread(target=_end_with, args=(parent,), daemon=True).start()
    with Connection(descriptor) as rank:
        try:
            builder: StepBuilder = pickle.loads(rank.recv_bytes())  # from the process that started this one
            steps: range = rank.recv()
            permitted = 0
            for step in steps:
                # All that have come are taken, so that the rank never waits until it can give one.
                while permitted == 0 or rank.poll():
                    permitted += rank.recv()
                permitted -= 1
                if not _serve(rank, builder, step):
                    break
            while True:
                rank.recv()  # to the end: leaving early would look like an accident
        except (EOFError, ConnectionError):
            return


def _serve(rank: Connection, builder: StepBuilder, step: int) -> bool:
    """Build a step and send it; return whether that went well."""
    try:
        descriptor, description = share(builder.batch(step))
    except UserError as error:
        rank.send((REFUSED, str(error)))
        return False
    except Exception:  # noqa: BLE001 - told to the rank, whatever it is
        rank.send((BROKEN, traceback.format_exc()))
        return False
    try:
        rank.send((BUILT, description))
        _send_descriptor(rank, descriptor)
    finally:
        os.close(descriptor)
    return True


def _send_descriptor(rank: Connection, descriptor: int) -> None:
    while True:
        try:
            send_handle(rank, descriptor, os.getpid())
        except OSError as error:
            # Linux lets a user have as many descriptors under way as files open; ranks will fetch theirs.
            if error.errno != errno.ETOOMANYREFS:
                raise
            time.sleep(_RETRY_S)
        else:
            return


def _end_with(parent: int) -> None:
    """End this process as soon as the process that started it is gone, also in the middle of a step."""
    with suppress(ProcessLookupError):
        gone = os.pidfd_open(parent)
        if os.getppid() == parent:  # and not a later process of its number
            wait([gone])
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
