"""The peak counts this process and its children."""

import os
import subprocess
import sys

from xlm.runs.memory import MemorySampler

SIZE = 150_000_000


def test_memory_of_a_child_is_seen():
    with MemorySampler(os.getpid(), interval_s=0.02) as idle:
        pass
    code = f"import time; held = bytearray({SIZE}); time.sleep(0.5)"
    with MemorySampler(os.getpid(), interval_s=0.02) as sampler:
        subprocess.run([sys.executable, "-c", code], check=True)
    assert sampler.peak_bytes > idle.peak_bytes + 0.9 * SIZE
