"""Who is gone when a collective fails: a sentence with the host and the reason, out of what the ranks left behind."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

import psutil
import torch.distributed as dist

from xlm.errors import USER_ERROR_EXIT_CODE, UserError
from xlm.training.heartbeat import BEAT_S, STALE_S, Heartbeat
from xlm.training.meeting import POLL_S, Ending, Meeting, Member, numbers
from xlm.training.whereabouts import WAITING

# EX_TEMPFAIL of sysexits.h, as after a notice of pre-emption: "the user is invited to retry".
LOST_EXIT_CODE = 75
CUT_OFF = "cut off"
# How long rank 0 looks for who is gone; two signs of life more than a silent rank is granted.
LOOK_S = STALE_S + 2 * BEAT_S
GO_ON = "Start the same command again to go on from the last checkpoint."
# gloo raises plain RuntimeErrors; what they say of a broken connection, and of one that only waits.
_BROKEN = re.compile(
    r"gloo/|gloo connect|NCCL|Connection (closed|reset) by peer|Broken pipe|Socket (Timeout|closed)|recvVector|sendBytes", re.I
)
_WAITED = re.compile(r"timed out|timeout", re.IGNORECASE)


class LostRankError(UserError):
    """Training ended because ranks are gone; started again, it goes on."""


class FailedRankError(UserError):
    """Training ended because another rank met a bug; started again, it may meet it again."""


def is_cut_off(error: BaseException) -> bool:
    """Return whether an error means that a collective or the store failed, not this rank."""
    if isinstance(error, UserError) or not isinstance(error, RuntimeError):
        return False
    return isinstance(error, dist.DistError) or _BROKEN.search(str(error)) is not None


def exit_code(error: BaseException) -> int:
    """Return the exit code that tells a scheduler whether to start again."""
    if isinstance(error, LostRankError) or is_cut_off(error):
        return LOST_EXIT_CODE
    return 1 if isinstance(error, FailedRankError) or not isinstance(error, UserError) else USER_ERROR_EXIT_CODE


def explain(error: BaseException, meeting: Meeting, heartbeat: Heartbeat, members: Sequence[Member], timeout_s: float) -> UserError:
    """Return on rank 0, after at most `LOOK_S`, the sentence that names who is gone and why."""
    waited = _WAITED.search(str(error)) is not None
    others = {member.rank: member for member in members if member.rank != 0}
    until = time.monotonic() + LOOK_S
    while True:
        endings = meeting.endings(others)
        if problem := _first_problem(endings, members):
            return problem
        here = [member for rank, member in others.items() if rank not in endings and _has_ended(member)]
        if here or any(rank not in endings for rank in heartbeat.silent()):
            # Ranks of one host fall silent within a sign of life of each other.
            silent = [others[rank] for rank in heartbeat.silent(STALE_S - BEAT_S) if rank not in endings]
            return LostRankError(_gone(here or silent, heartbeat.silent_s, waited=waited))
        if time.monotonic() > until:
            busy = [(member, place) for rank, member in others.items() if (place := heartbeat.place(rank)) not in ("", WAITING)]
            return LostRankError(_all_alive(error, members, busy, timeout_s, waited=waited))
        time.sleep(POLL_S)


def rank_0_is_gone(members: Sequence[Member], rank: int, silent_s: float) -> LostRankError:
    """Return what another rank says when rank 0 cannot."""
    first, own = members[0], members[rank]
    return LostRankError(
        f"{own}: no sign of rank 0 on {first.host} for {silent_s:.0f} s; it was killed, its host is down, or the network is cut. {GO_ON}"
    )


def long_silence(members: Iterable[Member], timeout_s: float) -> LostRankError:
    """Return the sentence for ranks that gave no sign for longer than collectives wait."""
    return LostRankError(
        f"no sign of {named(members)} for more than {timeout_s:.0f} s (training.process_group_timeout_s): the host is down or "
        f"stopped, or the network to it is cut. {GO_ON}"
    )


def _first_problem(endings: dict[int, Ending], members: Sequence[Member]) -> UserError | None:
    for rank, ending in sorted(endings.items()):
        if ending.kind == "user":
            return UserError(f"{members[rank]}: {ending.told}")
        if ending.kind == "bug":
            return FailedRankError(f"{members[rank]} ended with an error, its traceback is in what it printed: {ending.told}")
    return None


def _has_ended(member: Member) -> bool:
    """Return whether a rank of this host is no longer a process; of other hosts nothing is known here."""
    if member.host != socket.gethostname():
        return False
    try:
        return psutil.Process(member.pid).status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True


def _gone(gone: Sequence[Member], silent_s: Callable[[int], float], *, waited: bool) -> str:
    since = max(silent_s(member.rank) for member in gone)
    if waited:
        return f"no sign of {named(gone)} for {since:.0f} s: the host is down or stopped, or the network to it is cut. {GO_ON}"
    return f"{named(gone)} ended without a word: killed (perhaps for memory), or the host went down. {GO_ON}"


def _all_alive(
    error: BaseException, members: Sequence[Member], busy: Sequence[tuple[Member, str]], timeout_s: float, *, waited: bool
) -> str:
    """Return the sentence for ranks that all live; ``busy`` are those that waited for nobody, each with its place in the code."""
    if waited:
        where = " and ".join(f"{member} was at {place} meanwhile," for member, place in busy[:2]) or "one is"
        return (
            f"the ranks waited for each other longer than training.process_group_timeout_s ({timeout_s:.0f} s), though all are alive; "
            f"{where} stuck or much slower: raise the timeout if a step may take that long. {GO_ON}"
        )
    first = str(error).splitlines()[0]
    at = next((member for member in members if member.rank and f"[{member.address}]" in first), None)
    return f"the connection {f'to {at} ' if at else ''}broke, though all ranks are alive ({first}). {GO_ON}"


def named(members: Iterable[Member]) -> str:
    """Return ``birch (ranks 2 and 3) and cedar (rank 4)``."""
    told = [f"{host} ({numbers('rank', [member.rank for member in of])})" for host, of in groupby(members, lambda member: member.host)]
    return " and ".join(told)
