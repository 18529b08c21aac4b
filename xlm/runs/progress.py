"""Progress of long work: a bar with rate and time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar

from tqdm import tqdm

Item = TypeVar("Item")
PLAIN_INTERVAL_S = 15.0


class Progress:
    """Count work done; ``with Progress("shards", total=10, unit="shards") as p: p.advance()``."""

    def __init__(self, what: str, *, total: int | None, unit: str) -> None:
        self._what, self._total, self._unit = what, total, unit
        self._done = 0
        self._note = ""
        self._started = time.monotonic()
        self._printed = self._started
        self._bar: tqdm[Any] | None = None
        if sys.stderr.isatty():
            self._bar = tqdm(total=total, desc=what, unit=f" {unit}", dynamic_ncols=True, unit_scale=True, leave=False)

    def advance(self, amount: int = 1, note: str = "") -> None:
        """Add ``amount`` units; ``note`` is shown beside the rate."""
        self._done += amount
        self._note = note or self._note
        if self._bar is not None:
            if note:
                self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(amount)
            return
        now = time.monotonic()
        if now - self._printed >= PLAIN_INTERVAL_S:
            self._printed = now
            print(self._line(now - self._started), file=sys.stderr, flush=True)

    def say(self, line: str) -> None:
        """Show a line of its own above the bar, or in place of the next plain line."""
        if self._bar is not None:
            self._bar.write(line, file=sys.stderr)
            return
        self._printed = time.monotonic()
        print(line, file=sys.stderr, flush=True)

    def _line(self, elapsed_s: float) -> str:
        rate = self._done / max(elapsed_s, 1e-9)
        line = f"{self._what}: {self._done:,}"
        if self._total:
            left_s = (self._total - self._done) / rate if rate > 0 else float("inf")
            line += f" of {self._total:,} {self._unit}, {rate:,.1f}/s, {left_s:,.0f} s left"
        else:
            line += f" {self._unit}, {rate:,.1f}/s"
        return line + (f", {self._note}" if self._note else "")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()
        if kind is None:
            print(f"{self._what}: {self._done:,} {self._unit} in {time.monotonic() - self._started:.1f} s", file=sys.stderr, flush=True)


def track(items: Iterable[Item], what: str, *, total: int | None, unit: str) -> Iterator[Item]:
    """Yield ``items`` and show how many have been taken."""
    with Progress(what, total=total, unit=unit) as progress:
        for item in items:
            yield item
            progress.advance()
