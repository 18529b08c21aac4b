"""How the C library keeps memory that tensors on a CPU have let go of."""

from __future__ import annotations

import ctypes

# mallopt(3): blocks from this size on are mapped one by one and go back to the system when they are freed.
M_MMAP_THRESHOLD = -3
LARGE_BLOCK_BYTES = 4 << 20


def return_large_blocks() -> bool:
    """Have freed blocks of 4 MiB and more go back to the system at once; return whether the C library can (glibc).

    glibc raises that threshold to 32 MiB as a program goes on, and then cuts activations and the tensors of the
    backward pass from one heap, between which holes stay: .5 GiB for XLM-R base and 2,048 tokens (benchmarks/NOTES.md).
    """
    try:
        return bool(ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES))
    except (AttributeError, OSError):
        return False
