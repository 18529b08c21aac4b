"""The peak counts this process and its children."""

import os
import subprocess
import sys
import time

from xlm.runs.memory import MemorySampler

SIZE = 150_000_000


def test_memory_of_a_child_is_seen():
    with MemorySampler(os.getpid(), interval_s=0.02) as idle:
        pass
    code = f"import time; held = bytearray({SIZE}); time.sleep(0.5)"
    with MemorySampler(os.getpid(), interval_s=0.02) as sampler:
        subprocess.run([sys.executable, "-c", code], check=True)
    assert sampler.peak_bytes > idle.peak_bytes + 0.9 * SIZE


def test_the_tree_may_be_looked_for_less_often_than_it_is_weighed():
    held = []
    with MemorySampler(os.getpid(), interval_s=0.02, tree_interval_s=1000.0) as sampler:
        before = sampler.peak_bytes
        held.append(bytearray(b"1" * SIZE))
        with subprocess.Popen([sys.executable, "-c", f"import time; held = bytearray({SIZE}); time.sleep(0.3)"]):
            time.sleep(0.3)
    assert before + 0.9 * SIZE < sampler.peak_bytes < before + 1.9 * SIZE  # the child came later
