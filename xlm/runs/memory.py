"""Peak memory of a process and everything below it."""

from __future__ import annotations

import math
import threading
import time
from types import TracebackType

import psutil

INTERVAL_S = 0.5


class MemorySampler:
    """Sample the resident memory of a process tree in a thread and keep the largest sum.

    Pages shared between processes count once per process, so the figure is an upper bound. ``tree_interval_s``: how often
    the tree is looked for, which reads a file of every process of the machine; None: at every sample. Work that takes
    all cores for hours, with the same processes throughout, need not.
    """

    def __init__(self, root_pid: int, interval_s: float = INTERVAL_S, tree_interval_s: float | None = None) -> None:
        self.peak_bytes = 0
        self._tree_interval_s = tree_interval_s
        self._processes: list[psutil.Process] = []
        self._looked = -math.inf
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
        now = time.monotonic()
        if self._tree_interval_s is None or now - self._looked >= self._tree_interval_s:
            self._looked = now
            try:
                root = psutil.Process(self._root)
                self._processes = [root, *root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
        total = 0
        for process in self._processes:
            try:
                total += process.memory_info().rss
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        self.peak_bytes = max(self.peak_bytes, total)
