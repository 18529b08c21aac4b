"""The one door to MLflow: buffered, in a thread of its own, never in the way.

Promise 9. Training hands over numbers and goes on; a thread opens the store (several seconds), writes in
batches (a synchronous metric costs about 10 ms), and when the store fails keeps what it has and tries
again; the end waits only a few seconds for a server that was found dead. What it has then still not taken is
said, and sent when the same command is run again: metrics.jsonl has it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Any

from xlm.tracking.delivery import Delivery, entries_of, entries_of_record
from xlm.tracking.json_lines import STEP, TIME, JsonLines
from xlm.tracking.mlflow_run import MlflowRun
from xlm.tracking.run_card import RunCard
from xlm.tracking.store import (
    HTTP_DEFAULTS,
    LONGEST_TIMEOUT_S,
    SQLITE,
    TIMEOUT_VARIABLE,
    default_tracking_uri,
    ui_command,
    without_credentials,
)
from xlm.tracking.system_metrics import INTERVAL_S as SYSTEM_INTERVAL_S
from xlm.tracking.system_metrics import SystemMetrics

FLUSH_INTERVAL_S = 15.0
CLOSE_TIMEOUT_S = 60.0
# How long the end of a run waits for a server whose last call failed, and after which pause it is asked once more.
FAILING_CLOSE_TIMEOUT_S = 5.0
CLOSE_RETRY_S = 0.5
# How often a run's card is tried where the store takes numbers, but no files.
CARD_TRIES = 3


class _Note(Enum):
    """What the thread is told beside numbers."""

    RESUMED = auto()
    CLOSED = auto()


_Record = tuple[Mapping[str, Any], bool]  # and whether metrics.jsonl has it
_Item = _Record | threading.Event | _Note


class Tracker:
    """One MLflow run, named by ``key`` (kept in ``run.json``) and shown as ``name``."""

    def __init__(
        self,
        run_root: Path,
        *,
        key: str,
        name: str,
        parameters: Mapping[str, Any] | None = None,
        parent: str | None = None,
        card: Callable[[], RunCard] | None = None,
        lines: JsonLines | None = None,
        with_system_metrics: bool = False,
    ) -> None:
        """``parent`` is the key of a run that this one is shown below, ``lines`` the file whose records are logged."""
        self.uri = default_tracking_uri(run_root)
        self._open_run: Callable[[], MlflowRun] = partial(MlflowRun, self.uri, key, name, parameters, parent)
        self._card, self._card_tries = card, 0
        self._run: MlflowRun | None = None
        self._delivery = Delivery(lines)
        self._samples: SystemMetrics | None = None
        self._with_system_metrics = with_system_metrics
        self._disk = run_root
        self._step = 0
        self._warned = self._recovered = False
        self._failing = False  # the last call failed
        self._own_timeout = TIMEOUT_VARIABLE not in os.environ
        self._status = "FINISHED"
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.cpu_s = 0.0  # what the thread has taken from training at most: the time in which it may have held the interpreter

    @property
    def run_id(self) -> str | None:
        """The id of the MLflow run, None until the store has answered."""
        return None if self._run is None else self._run.run_id

    @property
    def is_complete(self) -> bool:
        """Whether the store has everything that was logged and can still arrive."""
        return self._run is not None and self._delivery.is_complete and self._queue.empty()

    def start(self) -> None:
        """Open the run in the background."""
        self._thread = threading.Thread(target=self._work, name="tracker", daemon=True)
        self._thread.start()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Hand over the metrics of a step; returns at once."""
        self._queue.put(({STEP: step, TIME: time.time(), **metrics}, False))

    def log_line(self, record: Mapping[str, Any]) -> None:
        """Hand over a record that has just been written to ``lines``, and is not changed any more; returns at once."""
        self._queue.put((record, True))

    def resume(self) -> None:
        """Say that ``lines`` has records of earlier processes: what the store lacks of them is sent, what it has is not sent again."""
        self._queue.put(_Note.RESUMED)

    def flush(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Ask for everything handed over so far to be written, and wait for it at most ``timeout_s``."""
        if self._thread is not None:
            done = threading.Event()
            self._queue.put(done)
            self._wait(done.is_set, done.wait, timeout_s)

    def close(self, status: str = "FINISHED", timeout_s: float | None = None) -> None:
        """Write what is left and end the run as FINISHED, FAILED or KILLED; waits at most a minute, for a dead server seconds."""
        if self._thread is None:
            return
        self._status = status
        self._queue.put(_Note.CLOSED)
        thread, self._thread = self._thread, None
        if not self._wait(lambda: not thread.is_alive(), thread.join, CLOSE_TIMEOUT_S if timeout_s is None else timeout_s):
            self._warn("no answer in time")
        if self._delivery.dropped:
            self._say(f"warning: {self._delivery.dropped:,} metrics did not reach MLflow at {self.uri}; metrics.jsonl has every loss.")
        if not self.is_complete:
            self._say(f"MLflow at {self.uri} lacks {self._delivery.unsent:,} metrics; run the same command again when it answers.")

    def log_figures(self, paths: Iterable[Path]) -> None:
        """Attach files to the run under ``figures/``; opens the run when it is not open."""
        if self._thread is not None and self._server_is_dead():
            return  # the thread has said so, and is the one that keeps trying
        with self._never_in_the_way():
            self._opened().log_files(paths, "figures")

    def ui_command(self) -> str:
        """Return the command that opens the MLflow UI on this store; a server has its UI at its own address."""
        return ui_command(self.uri)

    def _server_is_dead(self) -> bool:
        # A file never is: a locked database comes back, and waiting for it is what keeps its last numbers.
        return self._failing and not self.uri.startswith(SQLITE)

    def _wait(self, is_done: Callable[[], bool], wait: Callable[[float], object], timeout_s: float) -> bool:
        """Wait at most ``timeout_s``, or less as long as the server is dead, and return whether it was done."""
        began = time.monotonic()
        while not is_done():
            limit_s = min(timeout_s, FAILING_CLOSE_TIMEOUT_S) if self._server_is_dead() else timeout_s
            left_s = began + limit_s - time.monotonic()
            if left_s <= 0:
                return False
            wait(min(left_s, 0.2))  # short, because the server may be found dead, or alive again, meanwhile
        return True

    def _work(self) -> None:
        self._attempt()
        now = time.monotonic()
        flush_at, sample_at = now + FLUSH_INTERVAL_S, now
        while True:
            if self._with_system_metrics and time.monotonic() >= sample_at:
                sample_at = time.monotonic() + SYSTEM_INTERVAL_S
                self._sample()
            item: _Item | None = None
            wake_at = min(flush_at, sample_at) if self._with_system_metrics else flush_at
            with contextlib.suppress(queue.Empty):
                item = self._queue.get(timeout=max(wake_at - time.monotonic(), 0.0))
            if isinstance(item, tuple):
                self._take(*item)
            if item is _Note.RESUMED:
                self._delivery.resume()
            if isinstance(item, threading.Event | _Note) or time.monotonic() >= flush_at:
                self._attempt()
                flush_at = time.monotonic() + FLUSH_INTERVAL_S
            if isinstance(item, threading.Event):
                item.set()
            if item is _Note.CLOSED:
                self._end()
                return

    def _take(self, record: Mapping[str, Any], in_file: bool) -> None:
        self._step = int(record[STEP])
        self._delivery.add(entries_of_record(record, in_file=in_file))

    def _sample(self) -> None:
        """Add what the machine is doing, at the step that was logged last."""
        with contextlib.suppress(Exception):  # a machine that does not say stops nothing
            if self._samples is None:
                self._samples = SystemMetrics(self._disk)
                return  # rates need a first look
            found = self._samples.sample()
            self._delivery.add(entries_of(self._step, int(time.time() * 1000), found, in_file=False))

    def _attempt(self) -> bool:
        """Write everything, and return whether the store took it."""
        done = False
        with self._never_in_the_way():
            run = self._opened()
            self._delivery.deliver(run)
            done = True
            self._failing = False
            self._log_card(run)
        if done and self._warned and not self._recovered:
            self._recovered = True
            self._say(f"MLflow at {self.uri} answers; it has every metric up to step {self._step:,} now.")
        self.cpu_s = time.thread_time()
        return done

    def _log_card(self, run: MlflowRun) -> None:
        """Attach what the run is made of; a store that takes numbers and no files is asked a few times, and then let be."""
        if self._card is None or run.has_card or self._card_tries == CARD_TRIES:
            return
        self._card_tries += 1
        try:
            run.log_card(self._card())
        except Exception as error:  # noqa: BLE001 (promise 9: no failure of the store stops training)
            if self._card_tries == CARD_TRIES:
                self._say(f"warning: MLflow at {self.uri} takes no files of this run ({_reason(error)}); its numbers arrive.")

    def _end(self) -> None:
        """End the run in the store, asking again as long as anybody may still wait for it."""
        began = time.monotonic()
        while time.monotonic() - began < FAILING_CLOSE_TIMEOUT_S:
            if self._attempt():
                with self._never_in_the_way():
                    self._opened().end(self._status)
                    return
            time.sleep(CLOSE_RETRY_S)

    def _opened(self) -> MlflowRun:
        if self._run is None:
            self._run = self._open_run()
        return self._run

    @contextlib.contextmanager
    def _never_in_the_way(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 (promise 9: no failure of the store stops training)
            self._failing = True
            if self._own_timeout and _is_timeout(error):
                self._give_more_time()
            self._warn(_reason(error))

    def _give_more_time(self) -> None:
        """Wait longer for the next answer: a server that is slow, and not dead, must get its numbers too."""
        timeout_s = int(os.environ.get(TIMEOUT_VARIABLE) or HTTP_DEFAULTS[TIMEOUT_VARIABLE])
        os.environ[TIMEOUT_VARIABLE] = str(min(2 * timeout_s, LONGEST_TIMEOUT_S))

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            self._say(f"warning: MLflow at {self.uri} does not answer ({reason}); training goes on, metrics.jsonl has every number.")

    def _say(self, line: str) -> None:
        print(without_credentials(line, self.uri), file=sys.stderr)


def _chain(error: BaseException) -> list[BaseException]:
    """Return an error and what caused it, the innermost last."""
    chain = [error]
    for _ in range(20):  # a chain of causes may be a circle
        inner = chain[-1].__cause__ or chain[-1].__context__
        if inner is None:
            break
        chain.append(inner)
    return chain


def _is_timeout(error: BaseException) -> bool:
    return any(isinstance(one, TimeoutError) or "timed out" in str(one) for one in _chain(error))


def _reason(error: BaseException) -> str:
    """Say what went wrong, in one line: the system's own words where a chain of libraries wraps them."""
    innermost = _chain(error)[-1]
    if isinstance(innermost, OSError):
        error = innermost
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
