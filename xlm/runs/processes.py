"""Run a program to its end as a child, and take everything it started down with it when asked to stop.

A launcher starts ranks, a rank starts workers: signalling the child alone leaves the others running.
Workers are in sessions of their own and end with their rank, whose business they are. Only processes found
below the child are ever signalled, each by its id.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import FrameType

import psutil

_RANK_VARIABLE = "LOCAL_RANK"  # every launcher sets it: deepspeed, torchrun


def run_to_end(command: Sequence[str], environment: Mapping[str, str], *, saves_when_stopped: bool, grace_s: float) -> int:
    """Run ``command`` and return its exit code; a KeyboardInterrupt ends its whole tree and is raised again.

    ``saves_when_stopped``: the ranks are asked alone first and get ``grace_s`` seconds to save, since a launcher that
    is told to stop cuts its ranks short. Otherwise all are asked together. What is left after ``grace_s``, or at a
    second interrupt, is killed.
    """
    # Its own session: Ctrl-C in a terminal reaches this process alone, which then stops the others in order.
    child = subprocess.Popen(list(command), env=without_rank(environment), start_new_session=True)
    try:
        return child.wait()
    except KeyboardInterrupt:
        stop_tree(child, ranks_first=saves_when_stopped, grace_s=grace_s)
        raise


def interrupt_when_terminated() -> None:
    """Take SIGTERM and SIGHUP as Ctrl-C, so that what was started is stopped in order."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)


def without_rank(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a launcher, which is no rank itself, wherever it is started."""
    return {name: value for name, value in environment.items() if name != _RANK_VARIABLE}


def stop_tree(child: subprocess.Popen[bytes], *, ranks_first: bool, grace_s: float) -> None:
    """Ask a child that has a session of its own, and all below it, to stop; kill what is left after ``grace_s``."""
    members = _tree(child.pid)
    asked = _ranks(members, child.pid) if ranks_first else members
    for member in asked:
        _signal(member, signal.SIGTERM)
    # A second Ctrl-C while waiting means now.
    with contextlib.suppress(KeyboardInterrupt):
        psutil.wait_procs(members, timeout=grace_s)
    for member in {*members, *_tree(child.pid)}:
        _signal(member, signal.SIGKILL)
    child.wait()


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _ranks(members: Sequence[psutil.Process], session: int) -> list[psutil.Process]:
    """Return the ranks that a launcher started, without what they started themselves; where there are none, all of the session.

    A rank may have a child in the launcher's session (a compiler's), so that being a leaf of the tree says nothing.
    """
    marked = [member for member in members if _has_rank(member)]
    if not marked:
        return [member for member in members if _session_of(member) == session]
    ids = {member.pid for member in marked}
    return [member for member in marked if _parent_of(member) not in ids]


def _has_rank(process: psutil.Process) -> bool:
    try:
        return _RANK_VARIABLE in process.environ()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _session_of(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except ProcessLookupError:
        return None


def _parent_of(process: psutil.Process) -> int | None:
    try:
        return process.ppid()
    except psutil.NoSuchProcess:
        return None


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    # psutil compares start times, so that a process id used again by another program is never hit.
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def gpu_count() -> int:
    """Return how many GPUs torch can use, asked in a process of its own: torch would stay in memory for the whole run."""
    question = [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"]
    answer = subprocess.run(question, capture_output=True, text=True, check=False).stdout.strip()
    return int(answer) if answer.isdigit() else 0


def free_port() -> int:
    """Return a TCP port of this machine that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
