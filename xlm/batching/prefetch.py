"""Preparing items ahead in one background thread, with a bound on how many wait."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class _Made(Generic[Item]):
    item: Item


@dataclass(frozen=True, slots=True)
class _Ended:
    error: BaseException | None


def prefetched(items: Iterator[Item], ahead: int) -> Generator[Item, None, None]:
    """Yield ``items`` in order, up to ``ahead`` of them made in advance.

    An exception of ``items`` is raised here, after the items before it. When the consumer stops early,
    the thread ends before this generator's ``close`` returns.
    """
    waiting: queue.Queue[_Made[Item] | _Ended] = queue.Queue(maxsize=max(1, ahead))
    stopped = threading.Event()

    def put(entry: _Made[Item] | _Ended) -> bool:
        while not stopped.is_set():
            try:
                waiting.put(entry, timeout=_POLL_S)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            for item in items:
                if not put(_Made(item)):
                    return
        except BaseException as error:  # noqa: BLE001 - handed to the consumer, whatever it is
            put(_Ended(error))
        else:
            put(_Ended(None))

    thread = threading.Thread(target=work, name="prefetch", daemon=True)
    thread.start()
    try:
        while True:
            entry = waiting.get()
            if isinstance(entry, _Ended):
                if entry.error is not None:
                    raise entry.error
                return
            yield entry.item
    finally:
        stopped.set()
        thread.join()
