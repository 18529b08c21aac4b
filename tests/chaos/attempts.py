"""One start of a made-up training on two ranks, and how it is ended: by which kill, of whom, when, where it hit.

Everything random is drawn from (seed, number of the attempt) before it starts; only what the machine does at that moment is
not repeatable.
"""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PLACES = ("start-up", "step", "save", "rename")
RANKS = (0, 1)
LONGEST_S = 900.0
# What the launcher says of a rank that SIGKILL or SIGXFSZ has ended.
_KILLED_ITSELF = re.compile(r"return code = -(9|25)\b")


@dataclass(frozen=True)
class Kill:
    """What ends an attempt: a signal after ``seconds`` in the loop (or in start-up), or the rank itself."""

    kind: str  # timer, event, byte
    whom: str  # rank 0, rank 1, both ranks, launcher, tree
    seconds: float = 0.0
    in_start_up: bool = False
    own: str = ""  # $KILL

    @staticmethod
    def draw(seed: int, number: int, step_s: float) -> Kill:
        """Draw the kill of an attempt; ``step_s`` is about how long a step takes with its share of saving."""
        chance = random.Random(f"{seed}/{number}")
        rank = chance.choice(RANKS)
        kind = chance.choices(("timer", "event", "byte"), (0.5, 0.3, 0.2))[0]
        if kind == "event":
            return Kill(kind, f"rank {rank}", own=f"event:{rank}:{chance.randint(1, 150 if rank == 0 else 12)}")
        if kind == "byte":
            return Kill(kind, f"rank {rank}", own=f"byte:{rank}:{chance.randint(1, 4)}:{chance.randint(0, 40_000)}")
        whom = chance.choices((f"rank {rank}", "both ranks", "launcher", "tree"), (0.4, 0.25, 0.1, 0.25))[0]
        in_start_up = whom != "launcher" and chance.random() < 0.15
        return Kill(kind, whom, seconds=chance.uniform(0, 12 * step_s), in_start_up=in_start_up)


@dataclass(frozen=True)
class Ended:
    """How an attempt ended: the launcher's code, and where each killed rank was (empty: training finished before)."""

    code: int
    places: tuple[str, ...]
    printed: str

    @property
    def place(self) -> str:
        """The place of the killed rank that was furthest into saving."""
        return max(self.places, key=PLACES.index) if self.places else "finished"


def attempt(recipe: Path, run: Path, stage: int, overrides: list[str], kill: Kill | None, folder: Path, *, runner: bool) -> Ended:
    """Start training through DeepSpeed's launcher (its ``runner`` as well, or its part on one machine) and end it as ``kill`` says."""
    for rank in RANKS:
        (folder / str(rank)).unlink(missing_ok=True)
    printed = folder / "printed"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": str(ROOT), "PLACES": str(folder)}
    environment |= {"KILL": kill.own if kill else "", "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}"}
    with printed.open("wb") as output:
        launcher = subprocess.Popen(
            [*_launcher(runner), *_command(recipe, run, stage, overrides)],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
        )
    try:
        killed = _kill_when_due(launcher, kill, folder) if kill and kill.kind == "timer" else None
        launcher.wait(LONGEST_S)
        _wait_for_ranks(folder)
    finally:
        _end(launcher, folder)
    text = printed.read_text(encoding="utf-8", errors="replace")
    if kill and kill.own:
        rank = int(kill.own.split(":")[1])
        killed = (_place(folder, rank),) if launcher.returncode else ()
        if launcher.returncode and not _KILLED_ITSELF.search(text):
            raise RuntimeError(f"the rank was to kill itself and ended in another way:\n{text[-4000:]}")
    if "Traceback" in text:
        raise RuntimeError(f"a rank met a bug:\n{text[-4000:]}")
    return Ended(launcher.returncode, killed or (), text)


def _launcher(runner: bool) -> list[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    if runner:
        program = str(Path(sys.executable).with_name("deepspeed"))
        return [sys.executable, program, "--hostfile", os.devnull, "--num_accelerators", "2", "--master_port", port]
    hosts = "eyJsb2NhbGhvc3QiOiBbMCwgMV19"  # {"localhost": [0, 1]}, as the runner passes it on
    return [sys.executable, "-m", "deepspeed.launcher.launch", f"--world_info={hosts}", "--master_addr=127.0.0.1", f"--master_port={port}"]


def _command(recipe: Path, run: Path, stage: int, overrides: list[str]) -> list[str]:
    config = ROOT / "deepspeed_configs" / f"zero{stage}.json"
    command = [str(HERE / "watched_pretrain.py"), "--recipe", str(recipe), "--run-dir", str(run), "--deepspeed_config", str(config)]
    return [*command, *(part for override in overrides for part in ("--set", override))]


def _kill_when_due(launcher: subprocess.Popen[bytes], kill: Kill, folder: Path) -> tuple[str, ...]:
    """Wait until the kill is due and carry it out; returns where the killed ranks were."""
    began = time.monotonic()
    while not _has_come_to(kill, folder):
        if launcher.poll() is not None or time.monotonic() - began > LONGEST_S:
            return ()
        time.sleep(0.02)
    time.sleep(kill.seconds)
    if launcher.poll() is not None:
        return ()
    pids = [pid for rank in RANKS if (pid := _pid(folder, rank))]
    of_whom = {"rank 0": pids[:1], "rank 1": pids[1:], "both ranks": pids, "launcher": [launcher.pid], "tree": _tree(launcher.pid)}
    victims = of_whom[kill.whom]
    for pid in victims:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    hit = [rank for rank in RANKS if _pid(folder, rank) in victims]
    return tuple(_place(folder, rank) for rank in hit or RANKS)


def _has_come_to(kill: Kill, folder: Path) -> bool:
    """Whether training is where the time to the kill begins: in the loop, or where its processes can be told."""
    if kill.in_start_up:
        return kill.whom == "tree" or all(_pid(folder, rank) for rank in RANKS)
    return _place(folder, 0) != "start-up"


def _tree(pid: int) -> list[int]:
    launcher = psutil.Process(pid)
    return [pid, *(child.pid for child in launcher.children(recursive=True))]


def _pid(folder: Path, rank: int) -> int | None:
    try:
        content = (folder / str(rank)).read_bytes()
    except FileNotFoundError:
        return None
    return int(content[4:]) if len(content) > 4 else None


def _place(folder: Path, rank: int) -> str:
    try:
        flags = (folder / str(rank)).read_bytes()[:3]
    except FileNotFoundError:
        return PLACES[0]
    return PLACES[max((place + 1 for place, flag in enumerate(flags) if flag), default=0)]


def _wait_for_ranks(folder: Path) -> None:
    """Wait for ranks whose launcher is gone: they save and end by themselves."""
    began = time.monotonic()
    while any(_is_rank(_pid(folder, rank)) for rank in RANKS):
        if time.monotonic() - began > LONGEST_S:
            raise TimeoutError("a rank outlived its launcher")
        time.sleep(0.1)


def _is_rank(pid: int | None) -> bool:
    try:
        return (
            pid is not None
            and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
            and any(argument.endswith("watched_pretrain.py") for argument in psutil.Process(pid).cmdline())
        )
    except psutil.Error:
        return False


def _end(launcher: subprocess.Popen[bytes], folder: Path) -> None:
    """Leave nothing running, whatever went wrong."""
    if launcher.poll() is None:
        for pid in _tree(launcher.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        launcher.wait()
    for rank in RANKS:
        if _is_rank(pid := _pid(folder, rank)) and pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
