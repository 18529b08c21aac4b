"""How much memory a process may still take: of the machine, or less, of the container or the batch job that it is in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

# Linux control groups, version 2 and 1: (limit, used now, and of that what is only cached: pages of files, given back before anything
# is refused).
_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def free_memory(process: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes that are free; the two files systems are the kernel's, but in tests."""
    return min([int(psutil.virtual_memory().available), *_left_in_groups(process, mounted)])


def _left_in_groups(process: Path, mounted: Path) -> Iterator[int]:
    """Yield what each group that this process is in, or one that encloses it, has left of its limit."""
    try:
        lines = process.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root, names = (mounted, _V2) if not controllers else (mounted / "memory", _V1)
        # Within a container the path is that of the machine outside, and the container's own group is mounted at the root.
        own = root / path.strip("/")
        for group in (own, *own.parents):
            left = _left(group, *names)
            if left is not None:
                yield left
            if group == root:
                break


def _left(group: Path, limit: str, used: str, cached: str) -> int | None:
    try:
        allowed, taken = ((group / name).read_text(encoding="ascii").strip() for name in (limit, used))
        statistics = dict(line.split(" ", 1) for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
        return None if allowed == "max" else int(allowed) - int(taken) + int(statistics.get(cached, 0))
    except (OSError, ValueError):
        return None
