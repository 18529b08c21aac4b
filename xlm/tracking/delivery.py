"""What has been logged and is not on the server yet: bounded, sent in whole calls, every value exactly once.

A value counts as the same on the server by run, name, step, time and number (the key of MLflow's table), so that a
call whose answer was lost may be sent again. After a kill nobody knows what had arrived: then the server is asked
which steps it has, and what metrics.jsonl has beyond these is sent with the times that stand there. The same file
gives back what a long outage pushed out of memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from xlm.tracking.json_lines import STEP, TIME, JsonLines, metrics_of

# MLflow's limit for one log_batch call.
METRICS_A_CALL = 1000
KEPT_METRICS = 100_000

Metric = tuple[str, float, int, int]  # name, value, time in ms, step


class RejectedError(Exception):
    """The server has understood a call and will never take it."""


class Sink(Protocol):
    """Where metrics go."""

    def send(self, metrics: list[Metric]) -> None:
        """Write all of at most `METRICS_A_CALL` metrics or none; raises `RejectedError`, or anything else to try again later."""

    def steps_of(self, name: str) -> set[int]:
        """Return the steps at which the server has a metric."""


@dataclass(frozen=True)
class Entry:
    """The metrics of one step, as they were handed over together; at most `METRICS_A_CALL`."""

    step: int
    time_ms: int
    metrics: tuple[tuple[str, float], ...]
    in_file: bool  # metrics.jsonl has them too

    def rows(self) -> list[Metric]:
        """Return what a call takes."""
        return [(name, value, self.time_ms, self.step) for name, value in self.metrics]


def entries_of(step: int, time_ms: int, metrics: Mapping[str, float], *, in_file: bool) -> Iterator[Entry]:
    """Cut the metrics of a step where a call ends; always at the same places, so that a part arrives whole or not at all."""
    items = tuple(metrics.items())
    for start in range(0, len(items), METRICS_A_CALL):
        yield Entry(step, time_ms, items[start : start + METRICS_A_CALL], in_file)


class Delivery:
    """Keeps entries until a sink has them; used by one thread."""

    def __init__(self, lines: JsonLines | None = None, kept: int = KEPT_METRICS) -> None:
        """``lines``: the file that has every entry marked ``in_file``. ``kept``: how many metrics wait in memory at most."""
        self._lines, self._kept = lines, kept
        self._waiting: deque[Entry] = deque()
        self._size = 0
        self._behind = False
        self._known: dict[str, set[int]] | None = None
        self.sent = 0
        self.dropped = 0  # metrics that will not arrive, for any reason

    @property
    def unsent(self) -> int:
        """How many metrics wait in memory."""
        return self._size

    @property
    def is_complete(self) -> bool:
        """Whether the server has everything."""
        return not self._waiting and not self._behind

    def add(self, entries: Iterable[Entry]) -> None:
        """Take over entries; the oldest go where there are too many, to be read from the file again or counted as dropped."""
        for entry in entries:
            self._waiting.append(entry)
            self._size += len(entry.metrics)
        while self._size > self._kept:
            oldest = self._pop()
            if oldest.in_file and self._lines is not None:
                self._behind = True
            else:
                self.dropped += len(oldest.metrics)

    def resume(self) -> None:
        """Expect that the server has a part of this run already: compare with the file, and send no step twice."""
        self._behind = self._lines is not None
        self._known = {}

    def deliver(self, sink: Sink) -> None:
        """Send everything; what the sink raises goes on to the caller, and what it has taken by then is done with."""
        if self._behind:
            self._catch_up(sink)
        while self._waiting:
            call: list[Metric] = []
            taken = 0
            for entry in self._waiting:
                rows = [] if self._has(sink, entry) else entry.rows()
                if len(call) + len(rows) > METRICS_A_CALL:
                    break
                call += rows
                taken += 1
            self._send(sink, call)
            for _ in range(taken):
                self._pop()

    def _catch_up(self, sink: Sink) -> None:
        """Send what the file has, the server lacks and memory does not hold."""
        if self._lines is None:
            return
        self._known = {}
        first = next((entry.step for entry in self._waiting if entry.in_file), None)
        call: list[Metric] = []
        for record in self._lines:
            if first is not None and int(record[STEP]) > first:  # of the first itself a part may have been pushed out
                break
            for entry in entries_of_record(record):
                if self._has(sink, entry):
                    continue
                if len(call) + len(entry.metrics) > METRICS_A_CALL:
                    self._send(sink, call)
                    call = []
                call += entry.rows()
        self._send(sink, call)
        self._behind = False

    def _send(self, sink: Sink, call: list[Metric]) -> None:
        if not call:
            return
        try:
            sink.send(call)
            self.sent += len(call)
        except RejectedError:
            if len(call) == 1:
                self.dropped += 1
                return
            # One metric that is refused must not take the others with it.
            half = len(call) // 2
            self._send(sink, call[:half])
            self._send(sink, call[half:])

    def _has(self, sink: Sink, entry: Entry) -> bool:
        """Return whether the server has an entry, by its last metric, since a call arrives whole."""
        if self._known is None or not entry.in_file or not entry.metrics:
            return False
        name = entry.metrics[-1][0]
        if name not in self._known:
            self._known[name] = sink.steps_of(name)
        return entry.step in self._known[name]

    def _pop(self) -> Entry:
        entry = self._waiting.popleft()
        self._size -= len(entry.metrics)
        return entry


def entries_of_record(record: Mapping[str, Any], *, in_file: bool = True) -> Iterator[Entry]:
    """Return the entries of a line of metrics.jsonl."""
    return entries_of(int(record[STEP]), round(float(record.get(TIME, 0.0)) * 1000), metrics_of(record), in_file=in_file)
