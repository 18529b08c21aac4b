"""Children end with their exit code, and are all gone after an interrupt."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from xlm.runs.processes import free_port, gpu_count, run_to_end

# A launcher with two ranks below it; a rank that is told to stop takes a moment to save.
RANK = """
import pathlib, signal, sys, time
def save(number, frame):
    time.sleep(0.3)
    pathlib.Path(sys.argv[1]).write_text("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
pathlib.Path(sys.argv[1]).write_text("running")
time.sleep(60)
"""
LAUNCHER = """
import os, signal, subprocess, sys, time
ranks = [
    subprocess.Popen([sys.executable, "-c", sys.argv[1], path], env={**os.environ, "LOCAL_RANK": str(number)})
    for number, path in enumerate(sys.argv[2:])
]
def cut_short(number, frame):
    for rank in ranks:
        rank.kill()
signal.signal(signal.SIGTERM, cut_short)
for rank in ranks:
    rank.wait()
"""


# A rank with a worker in a session of its own, which leaves SIGTERM to the rank.
RANK_WITH_WORKER = """
import subprocess, sys
deaf = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
worker = subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True, stdout=subprocess.PIPE)
worker.stdout.read(1)
""" + RANK.replace("sys.exit(0)", "worker.kill(); sys.exit(0)")
# A rank with a child in the launcher's session, which must not be asked in its place.
RANK_WITH_COMPILER = RANK_WITH_WORKER.replace(", start_new_session=True", "")


def interrupt_when(condition) -> threading.Thread:
    def wait_and_interrupt() -> None:
        deadline = time.monotonic() + 20
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=wait_and_interrupt)
    thread.start()
    return thread


@pytest.mark.parametrize("code", [0, 2, 7])
def test_the_exit_code_comes_through(code: int) -> None:
    command = [sys.executable, "-c", f"import sys; sys.exit({code})"]
    assert run_to_end(command, os.environ, saves_when_stopped=False, grace_s=1) == code


def test_the_environment_is_the_one_given() -> None:
    command = [sys.executable, "-c", "import os, sys; sys.exit(int(os.environ['ANSWER']))"]
    assert run_to_end(command, {**os.environ, "ANSWER": "42"}, saves_when_stopped=False, grace_s=1) == 42


@pytest.mark.parametrize(("rank", "saves"), [(RANK, True), (RANK, False), (RANK_WITH_WORKER, True), (RANK_WITH_COMPILER, True)])
def test_an_interrupt_ends_the_whole_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: str, saves: bool) -> None:
    monkeypatch.setenv("LOCAL_RANK", "0")  # of a launcher further up, or left behind
    notes = [tmp_path / "rank0", tmp_path / "rank1"]
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    thread = interrupt_when(lambda: all(note.exists() and note.read_text() == "running" for note in notes))
    # Told to stop, the launcher cuts its ranks short; where all are asked together it has to let them be.
    launcher = LAUNCHER if saves else LAUNCHER.replace("rank.kill()", "pass")
    command = [sys.executable, "-c", launcher, rank, *map(str, notes)]
    with pytest.raises(KeyboardInterrupt):
        run_to_end(command, os.environ, saves_when_stopped=saves, grace_s=10)
    thread.join()
    assert [note.read_text() for note in notes] == ["saved", "saved"]
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def test_what_is_no_launcher_is_asked_itself(tmp_path: Path) -> None:
    note = tmp_path / "alone"
    thread = interrupt_when(lambda: note.exists() and note.read_text() == "running")
    with pytest.raises(KeyboardInterrupt):
        run_to_end([sys.executable, "-c", RANK, str(note)], os.environ, saves_when_stopped=True, grace_s=10)
    thread.join()
    assert note.read_text() == "saved"


def test_a_rank_that_never_ends_is_killed_after_the_grace(tmp_path: Path) -> None:
    note = tmp_path / "rank0"
    deaf = "import pathlib, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    deaf += "pathlib.Path(sys.argv[1]).write_text('running'); time.sleep(60)"
    thread = interrupt_when(lambda: note.exists() and note.read_text() == "running")
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_to_end([sys.executable, "-c", LAUNCHER, deaf, str(note)], os.environ, saves_when_stopped=True, grace_s=0.5)
    thread.join()
    assert time.monotonic() - started < 15


def test_a_free_port_can_be_listened_on():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", free_port()))


def test_gpus_are_counted_in_another_process():
    assert gpu_count() >= 0
    assert "torch" not in sys.modules or gpu_count() == sys.modules["torch"].cuda.device_count()
