"""The kernel's high-water mark sees what was held and let go in between."""

import torch
from training import memory

MIB = 1 << 20


def test_what_a_moment_held_is_seen_and_then_forgotten():
    memory.release_free_memory()
    settled = memory.resident_bytes()
    memory.reset_peak()
    torch.ones(64 * MIB // 4)
    held = memory.peak_bytes() - settled
    assert 60 * MIB < held < 90 * MIB
    memory.release_free_memory()  # whatever the process's allocator was told to keep
    memory.reset_peak()
    assert memory.peak_bytes() - settled < 20 * MIB


def test_memory_let_go_is_given_back():
    parts = [torch.ones(MIB // 16) for _ in range(256)]  # 256 KiB each: small enough for the C library to keep
    before = memory.resident_bytes()
    del parts
    memory.release_free_memory()
    assert before - memory.resident_bytes() > 50 * MIB
