"""The batches of a step in one piece of anonymous shared memory, to pass between processes without a copy.

The memory has no name: it is gone with the last process that holds it, however that process ends, and it
does not count against ``/dev/shm``, which containers keep small. Measured for a step of 32,768 tokens: 0.9 ms
of the receiver's processor, against 1.9 ms for bytes through a pipe and 4.3 ms for torch's own sharing,
which opens a file for each tensor.
"""

from __future__ import annotations

import mmap
import os
import pickle
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from xlm.batching.packed_batch import PackedBatch

_ALIGNMENT_BYTES = 64
_MAP_POPULATE = getattr(mmap, "MAP_POPULATE", 0x8000)  # all pages at once instead of a fault for each


class _Placed(NamedTuple):
    """Where a tensor lies."""

    kind: str
    shape: tuple[int, ...]
    start: int


def share(batches: Sequence[PackedBatch]) -> tuple[int, bytes]:
    """Copy batches into shared memory; return a file descriptor of it, which the caller closes, and a description."""
    described: list[dict[str, Any]] = []
    arrays: list[tuple[int, np.ndarray[Any, Any]]] = []
    size = 0
    for batch in batches:
        placed: dict[str, Any] = {}
        for field in fields(batch):
            value = getattr(batch, field.name)
            if isinstance(value, Tensor):
                array = np.ascontiguousarray(value.numpy())
                arrays.append((size, array))
                value = _Placed(array.dtype.str, array.shape, size)
                size += -(-array.nbytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
            placed[field.name] = value
        described.append(placed)
    descriptor = os.memfd_create("xlm batches")
    try:
        if size:
            os.ftruncate(descriptor, size)
            with mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED | _MAP_POPULATE) as memory:
                for start, array in arrays:
                    if array.nbytes:
                        memory[start : start + array.nbytes] = array.data.cast("B")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, pickle.dumps((size, described))


def receive(descriptor: int, description: bytes) -> list[PackedBatch]:
    """Return shared batches; their tensors are the memory itself, which goes when they go. Closes the descriptor."""
    size, described = pickle.loads(description)  # written by a process that this one started
    try:
        memory = mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED | _MAP_POPULATE) if size else bytearray()
    finally:
        os.close(descriptor)
    return [_batch(memory, of_batch) for of_batch in described]


def _batch(memory: mmap.mmap | bytearray, described: dict[str, Any]) -> PackedBatch:
    values: dict[str, Any] = {name: _tensor(memory, value) if isinstance(value, _Placed) else value for name, value in described.items()}
    return PackedBatch(**values)


def _tensor(memory: mmap.mmap | bytearray, placed: _Placed) -> Tensor:
    dtype, count = np.dtype(placed.kind), int(np.prod(placed.shape))
    if count == 0:
        return torch.from_numpy(np.empty(placed.shape, dtype=dtype))
    return torch.from_numpy(np.frombuffer(memory, dtype=dtype, count=count, offset=placed.start).reshape(placed.shape))
