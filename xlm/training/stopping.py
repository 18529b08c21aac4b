"""Being asked to stop: what asks, and the exit code that answers.

Training ends at the next step boundary, saved, when a rank gets SIGTERM (schedulers, `kill`), SIGUSR1 (a notice of
pre-emption) or SIGINT (Ctrl-C), or when the launcher that started it is gone: DeepSpeed's dies of a signal on one machine without
telling its ranks. Asking again changes nothing, so that a second signal never cuts the save short; a second Ctrl-C alone means now.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Mapping
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

import psutil

# 128 + the signal, as a shell would say it; EX_TEMPFAIL of sysexits.h, "the user is invited to retry", which no crash gives.
EXIT_CODES: Mapping[int, int] = {signal.SIGTERM: 143, signal.SIGUSR1: 75, signal.SIGINT: 130}
_LAUNCHERS = ("deepspeed", "deepspeed.launcher.launch", "deepspeed.launcher.runner", "torchrun", "torch.distributed.run")


class StopRequests:
    """Collects what asks this process to stop, from entering to leaving.

    Once asked, the signals stay ignored after leaving: the process is on its way out, and its exit code says so.
    """

    def __init__(self) -> None:
        self._asked = 0
        self._before: dict[int, Any] = {}
        self._launchers: list[int] = []  # descriptors that can be read once their process has ended
        self._ended = select.poll()

    def __enter__(self) -> StopRequests:
        """Take over the signals, and watch the launcher."""
        for number in EXIT_CODES:
            self._before[number] = signal.signal(number, self._ask)
        self._launchers = _watched_launchers()
        for descriptor in self._launchers:
            self._ended.register(descriptor, select.POLLIN)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Give the signals back, unless they were answered."""
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_IGN if self._asked else before)
        for descriptor in self._launchers:
            self._ended.unregister(descriptor)
            os.close(descriptor)
        self._launchers = []

    def asked(self) -> int:
        """Return the number of the signal that asks to stop, 0 where none does; a launcher that is gone counts as SIGTERM."""
        if not self._asked and self._launchers and self._ended.poll(0):
            self._asked = int(signal.SIGTERM)
        return self._asked

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self._asked == number:
            raise KeyboardInterrupt
        self._asked = max(self._asked, number)


def _watched_launchers() -> list[int]:
    """Return a descriptor for each launcher among the processes that started this one."""
    watched: list[int] = []
    if not hasattr(os, "pidfd_open"):  # not Linux
        return watched
    with suppress(psutil.Error):
        for process in psutil.Process().parents():
            if not _is_launcher(process):
                break
            with suppress(OSError):  # gone by now: its children will notice that they have another parent, as little as we can do
                watched.append(os.pidfd_open(process.pid))
    return watched


def _is_launcher(process: psutil.Process) -> bool:
    """Return whether a process is ``deepspeed``, ``torchrun`` or one of their modules, by the program it runs."""
    # What stands before the program: the interpreter and its options.
    program = [os.path.basename(argument) for argument in process.cmdline()[:8]]  # noqa: PTH119 - not every argument is a path
    python = bool(program) and program[0].startswith(("python", *_LAUNCHERS))
    for argument in program[1:] if python and program[0].startswith("python") else program[:1]:
        if argument in _LAUNCHERS:
            return True
        if not argument.startswith("-"):
            return False
    return False
