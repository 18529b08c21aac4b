"""One voice for all ranks: whatever ends one of them, rank 0 says it in one sentence, and all of them end.

Around everything that a rank does. A mistake is said once, although every rank finds it; a mistake on one host is said by
rank 0 with that host's name, before the process group forms as well as later; and when a rank is gone, the collective
that failed becomes a sentence about who and why.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType

from xlm.errors import USER_ERROR_EXIT_CODE, UserError
from xlm.training.distributed import Process, barrier, join_group, leave_group, refused
from xlm.training.heartbeat import BEAT_S, Heartbeat
from xlm.training.lost_ranks import CUT_OFF, GO_ON, LOST_EXIT_CODE, exit_code, explain, is_cut_off, long_silence, rank_0_is_gone
from xlm.training.meeting import POLL_S, Meeting, Member

# How long rank 0 waits for ranks of other hosts to come and hear why there is nothing to do.
TELL_S = 20.0
# How long another rank waits for rank 0 to say what is wrong, before it does so itself.
SILENCE_S = 10.0
# How long an ended rank stays, so that rank 0 speaks before the launcher ends everybody.
LINGER_S = 3.0
# A broken process group may hold up the interpreter's end.
LEAVE_S = 30
# Collectives notice a silent rank themselves, where they can.
GRACE_S = 10.0


class RollCall:
    """A context manager; with one process it does nothing."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._meeting: Meeting | None = None
        self._heartbeat: Heartbeat | None = None
        self.members: Sequence[Member] = ()  # all ranks, once they have met; none of a single process
        self._timeout_s = 0
        self._ending = threading.Lock()

    def __enter__(self) -> RollCall:
        """Start."""
        return self

    def meet(self, facts: Callable[[], Mapping[str, str]], timeout_s: int, compare: Callable[[Sequence[Member]], None]) -> None:
        """Wait for all ranks, have rank 0 compare what they have (``facts``), and form the process group.

        ``compare`` raises a UserError where they do not fit together.
        """
        self._timeout_s = timeout_s
        if self._process.world_size == 1:
            join_group(self._process, timeout_s)
            return
        self._meeting = Meeting.open(self._process, timeout_s)
        if not self._process.is_main and not self._meeting.wait_for_rank_0(timeout_s):
            sys.exit(USER_ERROR_EXIT_CODE)
        self._meeting.come(facts())
        if self._process.is_main:
            self.members = self._meeting.wait_for_all(timeout_s)
            compare(self.members)
            self._meeting.decide(self.members)
        else:
            self.members = self._meeting.decision(timeout_s + TELL_S) or ()
            if not self.members:
                sys.exit(USER_ERROR_EXIT_CODE)
        self._heartbeat = Heartbeat(self._meeting, self.members, self._process.rank, timeout_s + GRACE_S, self._end_at_once, os._exit)
        self._heartbeat.start()
        join_group(self._process, timeout_s, self._meeting.store)

    def part(self) -> None:
        """Leave the process group once all ranks are through: from here on nobody is missed, however long another takes to end."""
        barrier()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        leave_group()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Say what ended this rank, or leave the word to rank 0."""
        try:
            if self._process.world_size > 1 and isinstance(error, Exception):
                signal.signal(signal.SIGTERM, signal.SIG_IGN)  # of the launcher, which ends all when one has ended
                error = refused(error) or error
                code = self._speak(error) if self._process.is_main else self._leave_the_word(error)
                _leave_within(LEAVE_S, exit_code(error) if code is None else code)
                if code is not None:
                    raise SystemExit(code) from None
        finally:
            if self._heartbeat is not None:
                self._heartbeat.stop()

    def _speak(self, error: Exception) -> int | None:
        """Say on rank 0 what happened, and return the exit code; None for a bug, whose traceback is to be shown."""
        if self._heartbeat is not None and is_cut_off(error):
            assert self._meeting is not None
            error = explain(error, self._meeting, self._heartbeat, self.members, self._timeout_s)
        elif not isinstance(error, UserError):
            self._tell_others("bug", _words(error), exit_code(error))
            return None
        if not self._ending.acquire(blocking=False):
            time.sleep(LEAVE_S)  # the other thread has said it, and ends this process
        print(f"error: {error}", file=sys.stderr, flush=True)
        self._tell_others("user", str(error), exit_code(error))
        return exit_code(error)

    def _tell_others(self, kind: str, told: str, code: int) -> None:
        """Give other ranks the time to hear that rank 0 has spoken."""
        patience_s = TELL_S if self._heartbeat is None else SILENCE_S
        try:
            if self._meeting is None:
                if not self._process.spans_hosts:
                    return  # the launcher ends them
                self._meeting = Meeting.open(self._process, TELL_S)
            self._meeting.end(kind, told, code)
            others = set(range(1, self._process.world_size))
            until = time.monotonic() + patience_s
            while others and time.monotonic() < until:
                others -= self._meeting.known(others)
                if self._heartbeat is not None:
                    others -= set(self._heartbeat.silent())
                time.sleep(POLL_S)
        except (RuntimeError, UserError):
            return  # its store is broken or cannot be opened: the others notice by themselves

    def _leave_the_word(self, error: Exception) -> int | None:
        """End another rank: silently, if rank 0 says why; else with a sentence of its own."""
        if self._heartbeat is None:
            return self._stay_away(error)
        assert self._meeting is not None
        kind = CUT_OFF if is_cut_off(error) else "user" if isinstance(error, UserError) else "bug"
        _bounded(partial(self._meeting.end, kind, str(error) if kind == "user" else _words(error), exit_code(error)))
        if kind == "bug":
            return None
        code = self._hear_rank_0(exit_code(error))
        if code is not None:
            _bounded(self._meeting.know)
            return code
        if kind == "user":
            raise UserError(f"{self.members[self._process.rank]}: {error}") from None
        if self._is_first_beside_rank_0():
            lost = rank_0_is_gone(self.members, self._process.rank, self._heartbeat.silent_s(0))
            print(f"error: {lost}", file=sys.stderr, flush=True)
        return LOST_EXIT_CODE

    def _hear_rank_0(self, own: int) -> int | None:
        """Return this rank's exit code once rank 0 has spoken, or is known to live; None where it is gone."""
        assert self._heartbeat is not None
        began = time.monotonic()
        while time.monotonic() < began + SILENCE_S:
            if self._heartbeat.said is not None:
                return self._heartbeat.said
            if self._heartbeat.silent():
                return None
            # A sign since then: rank 0 lives, and may only hear of it when this rank has left.
            if time.monotonic() > began + LINGER_S and self._heartbeat.silent_s(0) < LINGER_S - BEAT_S:
                break
            time.sleep(POLL_S)
        return self._code_of_others(own)

    def _is_first_beside_rank_0(self) -> bool:
        """Return whether this is the first rank of its host, rank 0 left out: the one that speaks where rank 0 cannot."""
        own = self.members[self._process.rank]
        return own.rank == min(member.rank for member in self.members if member.host == own.host and member.rank != 0)

    def _code_of_others(self, code: int) -> int:
        """Return the exit code of a rank that ended by itself, where one did: what it says counts for all."""
        assert self._meeting is not None
        found = [code]

        def look(meeting: Meeting) -> None:
            endings = meeting.endings(member.rank for member in self.members)
            found.extend(ending.code for ending in endings.values() if ending.kind != CUT_OFF)

        _bounded(partial(look, self._meeting))
        return found[1] if len(found) > 1 else code

    def _stay_away(self, error: Exception) -> int | None:
        """Tell rank 0, before the process group forms, why this rank cannot come."""
        if is_cut_off(error):
            own = self._process
            if own.local_rank == (1 if own.rank == own.local_rank else 0):  # the first of its host, rank 0 left out
                host = os.uname().nodename
                print(f"error: rank {own.rank} on {host}: rank 0 was lost before training began. {GO_ON}", file=sys.stderr, flush=True)
            return LOST_EXIT_CODE
        kind, told = ("user", str(error)) if isinstance(error, UserError) else ("bug", _words(error))
        patience_s = TELL_S if self._process.spans_hosts else SILENCE_S
        try:
            meeting = self._meeting or Meeting.open(self._process, patience_s)
            meeting.end(kind, told, exit_code(error))
            until = time.monotonic() + patience_s
            while kind == "user" and time.monotonic() < until:
                if meeting.is_heard():
                    return exit_code(error)
                time.sleep(POLL_S)
        except (RuntimeError, UserError):
            pass  # no rank 0: it ended with the same mistake, or it never ran
        if kind == "bug":
            return None
        raise UserError(f"rank {self._process.rank} on {os.uname().nodename}: {error}") from None

    def _end_at_once(self) -> None:
        """Say who is silent and end this process, whose collectives wait on; in a thread of its own."""
        if not self._ending.acquire(blocking=False):
            return
        assert self._heartbeat is not None
        silent = self._heartbeat.silent(self._timeout_s)
        if self._process.is_main or self._is_first_beside_rank_0():
            if 0 in silent:  # as where a collective gives up first
                lost = rank_0_is_gone(self.members, self._process.rank, self._heartbeat.silent_s(0))
            else:
                lost = long_silence([self.members[rank] for rank in silent], self._timeout_s)
            print(f"error: {lost}", file=sys.stderr, flush=True)
        os._exit(LOST_EXIT_CODE)


def _leave_within(seconds: int, code: int) -> None:
    guard = threading.Timer(seconds, os._exit, [code])
    guard.daemon = True
    guard.start()
    # Should the interpreter be so far gone that its threads stand still, with an exit code that says nothing.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(2 * seconds)


def _words(error: BaseException) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def _bounded(call: Callable[[], None], seconds: float = 5.0) -> None:
    """Make a call to the store that a cut connection may hold for ever."""

    def quietly() -> None:
        with contextlib.suppress(RuntimeError):
            call()

    thread = threading.Thread(target=quietly, daemon=True)
    thread.start()
    thread.join(seconds)
