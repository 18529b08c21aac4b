"""What ranks tell each other beside their process group: before it forms, and after it broke.

Rank 0 holds a small store of keys and values (torch's TCPStore, at MASTER_ADDR and MASTER_PORT; `torchrun` holds one of its
own there). Here every rank says where it runs and what it has, or why it cannot take part, so that a mistake on one host
is named at once, and the others do not wait for the timeout.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from xlm.errors import UserError
from xlm.training.distributed import Process
from xlm.training.network import name_interface

POLL_S = 0.1
DEFAULT_PORT = 29500


@dataclass(frozen=True)
class Member:
    """A rank, where it runs, and what it has (`preflight.facts`)."""

    rank: int
    host: str
    address: str
    pid: int
    facts: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Name it as messages do."""
        return f"{self.host} (rank {self.rank})"


@dataclass(frozen=True)
class Ending:
    """Why a rank ended: a mistake of the user (``user``), a bug (``bug``), or because others were gone (``cut off``)."""

    kind: str
    told: str
    code: int
    host: str


class Meeting:
    """The store, as one rank sees it."""

    def __init__(self, store: Store, process: Process) -> None:
        self._store, self._process = store, process
        # torchrun starts ranks again under the same store; what the last ones said is not for these.
        self._round = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")

    @staticmethod
    def open(process: Process, timeout_s: float) -> Meeting:
        """Open the store on rank 0, or find it there; UserError where that does not come about within ``timeout_s``."""
        host, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", DEFAULT_PORT))
        holds = process.is_main and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        if not holds:
            _wait_for_port(host, port, timeout_s)
        try:
            store = TCPStore(host, port, None, holds, timedelta(seconds=timeout_s), wait_for_workers=False)
        except RuntimeError as error:
            raise UserError(_no_store(host, port, str(error))) from None
        return Meeting(store, process)

    @property
    def store(self) -> Store:
        """The store, for the process group to form by."""
        return PrefixStore(self._key("group"), self._store)

    def again(self) -> Meeting:
        """Return this meeting over a connection of its own, for another thread: a call blocks the connection."""
        return Meeting(self._store.clone(), self._process)  # type: ignore[attr-defined]

    def come(self, facts: Mapping[str, str]) -> Member:
        """Say that this rank is here, and what it has."""
        address = "127.0.0.1"
        if self._process.spans_hosts:
            address = name_interface(os.environ.get("MASTER_ADDR", "127.0.0.1"), DEFAULT_PORT)
        member = Member(self._process.rank, socket.gethostname(), address, os.getpid(), facts)
        self.beat(0)
        self._set(f"here/{member.rank}", json.dumps(asdict(member)))
        return member

    def wait_for_rank_0(self, timeout_s: float) -> bool:
        """Wait until rank 0 is here, and with it what other ranks look at (`preflight.TOKEN`); False where it has ended instead."""
        return self._comes("here/0", f"rank 0 did not come within {timeout_s:.0f} s; see what it prints.", timeout_s)

    def wait_for_all(self, timeout_s: float) -> list[Member]:
        """Return all ranks once they are here (rank 0); UserError in the words of one that cannot come, or for those missing."""
        until = time.monotonic() + timeout_s
        missing = set(range(self._process.world_size))
        while missing:
            for rank, ending in self.endings(missing).items():
                self._set(f"heard/{rank}", "")
                raise UserError(f"rank {rank} on {ending.host}: {ending.told}")
            missing = {rank for rank in missing if not self._store.check([self._key(f"here/{rank}")])}
            if missing and time.monotonic() > until:
                raise UserError(self._who_is_missing(missing, timeout_s))
            time.sleep(POLL_S if missing else 0.0)
        return [self._member(rank) for rank in range(self._process.world_size)]

    def decide(self, members: Sequence[Member] | None) -> None:
        """Tell the others whether training starts, and with whom (rank 0)."""
        told = None if members is None else [asdict(member) | {"facts": {}} for member in members]
        self._set("decision", json.dumps(told))

    def decision(self, timeout_s: float) -> list[Member] | None:
        """Return who trains, once rank 0 has decided; None where nobody does, which rank 0 says."""
        if not self._comes("decision", f"rank 0 did not start training within {timeout_s:.0f} s; see what it prints.", timeout_s):
            return None
        told = json.loads(self._get("decision"))
        return None if told is None else [Member(**member) for member in told]

    def end(self, kind: str, told: str, code: int) -> None:
        """Say why this rank ends, and with which exit code."""
        self._set(f"end/{self._process.rank}", json.dumps(asdict(Ending(kind, told, code, socket.gethostname()))))

    def endings(self, ranks: Iterable[int]) -> dict[int, Ending]:
        """Return what those of ``ranks`` said that have ended."""
        ended = [rank for rank in ranks if self._store.check([self._key(f"end/{rank}")])]
        return {rank: Ending(**json.loads(self._get(f"end/{rank}"))) for rank in ended}

    def is_heard(self) -> bool:
        """Return whether rank 0 knows why this rank cannot come, or has a reason of its own to end."""
        heard = any(self._store.check([self._key(name)]) for name in (f"heard/{self._process.rank}", "end/0"))
        if heard:
            self.know()
        return heard

    def know(self) -> None:
        """Tell rank 0 that this rank waits for nothing more from it, so that its store may go."""
        self._set(f"knows/{self._process.rank}", "")

    def known(self, ranks: Iterable[int]) -> set[int]:
        """Return those of ``ranks`` that wait for nothing more."""
        return {rank for rank in ranks if self._store.check([self._key(f"knows/{rank}")])}

    def beat(self, number: int, place: str = "") -> None:
        """Give a sign of life, and say where in the code it comes from."""
        self._set(f"beat/{self._process.rank}", f"{number} {place}")

    def beats(self, ranks: Iterable[int]) -> dict[int, str]:
        """Return the last sign of life of each of ``ranks``."""
        ranks = list(ranks)
        found = self._store.multi_get([self._key(f"beat/{rank}") for rank in ranks])
        return {rank: value.decode() for rank, value in zip(ranks, found, strict=True)}

    def said(self) -> int | None:
        """Return the exit code that rank 0 ends with, once it has said why training ends."""
        ending = self.endings([0]).get(0)
        return None if ending is None else ending.code

    def _comes(self, name: str, too_late: str, timeout_s: float) -> bool:
        """Wait for what rank 0 is to write; False where it has ended instead, UserError ``too_late`` after ``timeout_s``."""
        until = time.monotonic() + timeout_s
        while not self._store.check([self._key(name)]):
            if self.endings([0]):
                self.know()
                return False
            if time.monotonic() > until:
                raise UserError(too_late)
            time.sleep(POLL_S)
        return True

    def _who_is_missing(self, missing: set[int], timeout_s: float) -> str:
        came = [self._member(rank) for rank in range(self._process.world_size) if rank not in missing]
        nodes = sorted({rank // self._process.local_world_size for rank in missing})
        return (
            f"{len(missing)} of {self._process.world_size} ranks did not come within {timeout_s:.0f} s: {numbers('rank', missing)} "
            f"({numbers('node', nodes)}, counted from 0), while {', '.join(map(str, came)) or 'nobody'} did; check that these hosts are "
            "up, and what the launcher printed for them."
        )

    def _member(self, rank: int) -> Member:
        return Member(**json.loads(self._get(f"here/{rank}")))

    def _key(self, name: str) -> str:
        return f"xlm/{self._round}/{name}"

    def _set(self, name: str, value: str) -> None:
        self._store.set(self._key(name), value)

    def _get(self, name: str) -> str:
        return str(self._store.get(self._key(name)).decode())


def numbers(what: str, of: Iterable[int]) -> str:
    """Return ``rank 3``, or ``ranks 0 to 7, 9 and 12``."""
    runs: list[tuple[int, int]] = []
    for number in sorted(of):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    told = [part for first, last in runs for part in ([f"{first} to {last}"] if last > first + 1 else map(str, range(first, last + 1)))]
    if len(told) == 1:
        return f"{what}{'s' if runs[0][1] > runs[0][0] else ''} {told[0]}"
    return f"{what}s {', '.join(told[:-1])} and {told[-1]}"


def _wait_for_port(host: str, port: int, timeout_s: float) -> None:
    # torch's own attempts write a warning with a stack of calls for each that fails.
    until = time.monotonic() + timeout_s
    while True:
        try:
            with socket.create_connection((host, port), timeout=max(1.0, min(5.0, timeout_s))):
                return
        except OSError as error:
            if time.monotonic() > until:
                raise UserError(_no_store(host, port, f"{error.strerror or error} for {timeout_s:.0f} s")) from None
        time.sleep(POLL_S)


def _no_store(host: str, port: int, problem: str) -> str:
    here = socket.gethostname()
    if "EADDRINUSE" in problem or "in use" in problem:
        return f"port {port} of {here} is taken by another program, perhaps another training; give the launcher another --master_port."
    return (
        f"{here} cannot reach rank 0 at {host}:{port} ({problem.splitlines()[0]}); check that rank 0 runs, that --master_addr is the "
        "address of its host as others see it, and that no firewall is between them."
    )
