"""Signs of life: each rank writes one every second, rank 0 reads everybody's, the others rank 0's.

A collective that fails says little about who is gone: the neighbours of a lost rank leave as well, and a cut network is
only silence. So what counts is whose signs stopped, by the reader's own clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from xlm.training.meeting import Meeting, Member
from xlm.training.whereabouts import whereabouts

BEAT_S = 1.0
# So many seconds without a sign, after a collective failed, mean that a rank is gone.
STALE_S = 4.0
# So many seconds after rank 0 has told why training ends, a rank that still runs is held by a collective that cannot end (on a GPU).
HEED_S = 30.0


class Heartbeat:
    """Writes and reads signs of life in the background, from `start` to `stop`.

    ``too_long`` is called, once and in a thread, when somebody has been silent for ``limit_s``; ``told``, with the exit code, when
    this rank still runs `HEED_S` after rank 0 said why training ends.
    """

    def __init__(
        self,
        meeting: Meeting,
        members: Sequence[Member],
        rank: int,
        limit_s: float,
        too_long: Callable[[], None],
        told: Callable[[int], None],
    ) -> None:
        self._meeting, self._limit_s, self._too_long, self._told = meeting.again(), limit_s, too_long, told
        self._watched = [member.rank for member in members if member.rank != rank] if rank == 0 else [0]
        now = time.monotonic()
        self._last = dict.fromkeys(self._watched, ("", now))
        self._over = threading.Event()
        self.said: int | None = None  # the exit code, once rank 0 has told why training ends
        self._said_at: float | None = None

    def start(self) -> None:
        """Start both threads."""
        # Two, because a connection that is cut holds the first one fast.
        threading.Thread(target=self._beat, daemon=True, name="heartbeat").start()
        threading.Thread(target=self._watch, daemon=True, name="heartbeat watch").start()

    def stop(self) -> None:
        """End both threads, without waiting for them."""
        self._over.set()

    def place(self, rank: int) -> str:
        """Return where in the code a watched rank was when it gave its last sign (`whereabouts`)."""
        return self._last[rank][0].partition(" ")[2]

    def silent_s(self, rank: int) -> float:
        """Return for how many seconds a watched rank has given no sign."""
        return time.monotonic() - self._last[rank][1]

    def silent(self, longer_than_s: float = STALE_S) -> list[int]:
        """Return the watched ranks that have been silent for longer."""
        return [rank for rank in self._watched if self.silent_s(rank) > longer_than_s]

    def _beat(self) -> None:
        number = 0
        while not self._over.is_set():
            number += 1
            try:
                self._meeting.beat(number, whereabouts())
                for rank, value in self._meeting.beats(self._watched).items():
                    if value != self._last[rank][0]:
                        self._last[rank] = (value, time.monotonic())
                self.said = self._meeting.said()
                if self.said is not None:
                    self._said_at = self._said_at or time.monotonic()
                    self._meeting.know()
            except RuntimeError:  # rank 0 took the store with it
                return
            self._over.wait(BEAT_S)

    def _watch(self) -> None:
        while not self._over.wait(BEAT_S):
            if self.said is not None and self._said_at is not None and time.monotonic() - self._said_at > HEED_S:
                self._told(self.said)
                return
            if self.silent(self._limit_s):
                self._too_long()
                return
