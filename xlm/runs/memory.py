"""Peak memory of a process and everything below it."""

from __future__ import annotations

import threading
from types import TracebackType

import psutil

INTERVAL_S = 0.5


class MemorySampler:
    """Sample the resident memory of a process tree in a thread and keep the largest sum.

    Pages shared between processes count once per process, so the figure is an upper bound.
    """

    def __init__(self, root_pid: int, interval_s: float = INTERVAL_S) -> None:
        self.peak_bytes = 0
        self._root = root_pid
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory-sampler", daemon=True)

    def __enter__(self) -> MemorySampler:
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self._sample()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._sample()

    def _sample(self) -> None:
        try:
            root = psutil.Process(self._root)
            processes = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        total = 0
        for process in processes:
            try:
                total += process.memory_info().rss
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        self.peak_bytes = max(self.peak_bytes, total)
