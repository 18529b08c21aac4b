"""Large blocks go back to the system, in a process of its own: the setting stays for good."""

import subprocess
import sys

SCRIPT = """
import re
import torch
from pathlib import Path
from xlm.runs.allocator import return_large_blocks

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text()).group(1)) // 1024

# Freeing a mapped block raises glibc's threshold to its size; from then on such blocks come from the heap.
torch.zeros(7 << 20)
if {set}:
    assert return_large_blocks()
blocks = [torch.zeros(6 << 18) for _ in range(20)]
del blocks[:-1]  # The last one keeps the heap from shrinking.
print(resident())
"""


def resident_mib(asked):
    script = SCRIPT.replace("{set}", str(asked))
    return int(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)


def test_blocks_between_others_go_back_to_the_system():
    assert resident_mib(False) - resident_mib(True) > 80  # 19 blocks of 6 MiB
