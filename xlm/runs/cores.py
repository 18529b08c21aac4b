"""How many processor cores this process may use, which a container or a scheduler may have made fewer than the machine has."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Return the number of cores that this process may run on, at least 1."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
