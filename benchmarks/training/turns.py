"""Two sides that take turns, so that both meet the same machine.

A round is one optimizer step of each side. They alternate micro-batch by micro-batch, because a whole step of a large
model takes minutes, in which other work on the machine may come and go; a step's time is the sum of its parts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from training.cases import Case
from training.gemm import peaks

# What was prepared, and the answers to its parts, the update last.
Round = tuple[dict[str, Any], list[dict[str, Any]]]

FOLDER = Path(__file__).resolve().parents[1]
SIDES = ("ours", "peer")
# Held-out text: no step that is trained on has this number.
HELD_OUT = -1


def threads() -> str:
    """Return how many threads a side computes with: what the environment says, else a thread for each core."""
    return os.environ.get("OMP_NUM_THREADS") or str(len(os.sched_getaffinity(0)))


class SideProcess:
    """A child process that answers requests, see `training.side`; used as a context."""

    def __init__(self, name: str, case: Case) -> None:
        self.name = name
        # Waiting threads must sleep: the other side computes meanwhile.
        environment = {"OMP_NUM_THREADS": threads(), **os.environ, "OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false"}
        self._child = subprocess.Popen(
            [sys.executable, "-m", "training.side", name, case.to_json()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=FOLDER,
            env=environment,
        )

    def ask(self, request: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401
        """Send a request and wait for its answer; raises RuntimeError where the process has ended."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps({"do": request, **arguments}) + "\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of '{self.name}' ended (exit code {self._child.wait()}); its messages are above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> SideProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        if kind is not None:
            self._child.kill()
        self._child.wait()


@dataclass
class Record:
    """What one side did: a figure a round."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    predictions: list[int] = field(default_factory=list)
    flops: list[float] = field(default_factory=list)
    needed_flops: list[float] = field(default_factory=list)
    beyond_bytes: list[int] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)
    parameters: int = 0
    settled_bytes: int = 0
    gradient_bytes: int = 0
    state_bytes: int = 0
    held_out_loss: float | None = None

    def add(self, prepared: dict[str, Any], parts: Sequence[dict[str, Any]]) -> None:
        """Add a round: what was prepared, and the answers to its parts, the update last."""
        update = parts[-1]
        self.seconds.append(sum(part["seconds"] for part in parts))
        self.cpu_seconds.append(sum(part["cpu_seconds"] for part in parts))
        self.losses.append(update["loss"])
        for name in ("tokens", "positions", "predictions", "flops", "needed_flops"):
            getattr(self, name).append(prepared[name])
        for name in ("beyond_bytes", "peak_bytes"):
            getattr(self, name).append(update[name])
        for name in ("settled_bytes", "gradient_bytes", "state_bytes"):
            setattr(self, name, update[name])


@dataclass
class Comparison:
    """Both sides' records of one case, and the best product of each shape in FLOP/s."""

    case: Case
    sides: dict[str, Record]
    peaks: dict[str, float]


def compare(case: Case, *, held_out: bool = False, with_peaks: bool = True) -> Comparison:
    """Run a case; ``held_out`` has both sides' loss on other text measured at the end.

    The best products are measured before each round, ``with_peaks``, so that they meet the same machine, too.
    """
    comparison = Comparison(case, {name: Record() for name in SIDES}, {})
    with ExitStack() as stack:
        processes = {name: stack.enter_context(SideProcess(name, case)) for name in SIDES}
        for name, process in processes.items():
            comparison.sides[name].parameters = process.ask("load")["parameters"]
        # A token more than one micro-batch holds: the second one adds its gradients to the first one's.
        _round(processes, 0, tokens=case.micro_batch_tokens + 1)
        for process in processes.values():
            process.ask("settle")
        for step in range(1, case.rounds + 1):
            for shape, rate in (peaks(case) if with_peaks else {}).items():
                comparison.peaks[shape] = max(rate, comparison.peaks.get(shape, 0.0))
            for name, (prepared, parts) in _round(processes, step).items():
                comparison.sides[name].add(prepared, parts)
        if held_out:
            for name, process in processes.items():
                comparison.sides[name].held_out_loss = process.ask("evaluate", step=HELD_OUT)["loss"]
    return comparison


def _round(processes: dict[str, SideProcess], step: int, tokens: int | None = None) -> dict[str, Round]:
    """Run one step of each side, alternately."""
    prepared = {name: process.ask("prepare", step=step, tokens=tokens) for name, process in processes.items()}
    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in processes}
    # Who has fewer parts waits for the other in between, so that both are spread over the whole round.
    order = sorted((index / prepared[name]["parts"], name, index) for name in processes for index in range(prepared[name]["parts"]))
    for _, name, index in order:
        answers[name].append(processes[name].ask("part", index=index))
    for name, process in processes.items():
        answers[name].append(process.ask("update"))
    return {name: (prepared[name], answers[name]) for name in processes}
