"""How much memory a step takes beyond what training must hold, as the system counts it.

Training must hold parameters, gradients and optimizer state; activations, logits and every buffer in between are
what two ways of computing the same step differ in. Between steps gradients are let go and the allocator hands
free pages back, so that what is resident then is interpreter, libraries, data, parameters and optimizer state:

    beyond = highest resident memory of a step - resident memory between steps - bytes of the gradients

The high-water mark is the kernel's (VmHWM in /proc/self/status), set back to the present value before each step
by writing 5 to /proc/self/clear_refs (proc(5)); nothing is sampled, so no peak is missed.
"""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")
KIB = 1024


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return _status("VmRSS")


def peak_bytes() -> int:
    """Return the highest resident memory since `reset_peak`."""
    return _status("VmHWM")


def reset_peak() -> None:
    """Set the high-water mark back to what is resident now."""
    CLEAR_REFS.write_text("5", encoding="ascii")


def release_free_memory() -> None:
    """Collect garbage and let the C library give free pages back to the system, so that they do not count as held."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _status(field: str) -> int:
    for line in STATUS.read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * KIB
    raise OSError(f"{STATUS} has no {field}; memory is measured on Linux only")
