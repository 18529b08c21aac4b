"""Safetensors files by ranges of numbers: written as a stream, read a piece at a time, without torch.

The format is safetensors' own (https://github.com/huggingface/safetensors): eight bytes with the length of a JSON header, the
header with type, shape and place of every tensor, then the numbers in C order. The library maps whole tensors into
memory; here a rank of a run that went from two machines to three reads just the slices it holds, and what was read does not
stay resident. A disk that is full is an `OSError`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xlm.errors import UserError

ITEM_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2, "U8": 1, "I8": 1, "BOOL": 1}
_LENGTH_BYTES = 8
_MOST_HEADER_BYTES = 100_000_000  # safetensors' own limit
_METADATA = "__metadata__"


@dataclass(frozen=True)
class TensorPlace:
    """Type and shape of a tensor, and where its first byte is in the file."""

    dtype: str
    shape: tuple[int, ...]
    start_byte: int = 0

    @property
    def elements(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """How many bytes its numbers take."""
        return self.elements * ITEM_BYTES[self.dtype]


class TensorFile:
    """What is in a file, read without its numbers; raises UserError for one that is missing or damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata: dict[str, str] = {}
        self.tensors: dict[str, TensorPlace] = {}
        try:
            with path.open("rb") as file:
                length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
                if not 0 < length <= _MOST_HEADER_BYTES:
                    raise ValueError("length of the header")
                header: dict[str, Any] = json.loads(file.read(length))
            self.metadata = header.pop(_METADATA, {})
            for name, entry in header.items():
                begin, end = entry["data_offsets"]
                place = TensorPlace(entry["dtype"], tuple(entry["shape"]), _LENGTH_BYTES + length + begin)
                if place.size_bytes != end - begin or place.start_byte + place.size_bytes > path.stat().st_size:
                    raise ValueError(name)
                self.tensors[name] = place
        except FileNotFoundError:
            raise UserError("this file of a checkpoint is missing; use another checkpoint.", file=path) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise UserError("this file of a checkpoint is damaged; use another one.", file=path) from None

    def read(self, name: str, start: int, stop: int) -> bytearray:
        """Return the bytes of the numbers ``start`` to ``stop`` of a flattened tensor."""
        place = self.tensors[name]
        item = ITEM_BYTES[place.dtype]
        found = bytearray((stop - start) * item)
        with self.path.open("rb", buffering=0) as file:
            file.seek(place.start_byte + start * item)
            view, done = memoryview(found), 0
            while done < len(found):
                read = file.readinto(view[done:])
                if not read:
                    raise UserError("this file of a checkpoint is cut short; use another checkpoint.", file=self.path)
                done += read
        return found

    def chunks(self, name: str, start: int, stop: int, most_bytes: int = 1 << 22) -> Iterator[bytearray]:
        """Yield the same bytes in parts of at most ``most_bytes``."""
        step = max(most_bytes // ITEM_BYTES[self.tensors[name].dtype], 1)
        for begin in range(start, stop, step):
            yield self.read(name, begin, min(begin + step, stop))


def write_tensor_file(
    path: Path,
    tensors: Mapping[str, TensorPlace],
    contents: Iterable[bytes | bytearray | memoryview],
    metadata: Mapping[str, str],
) -> None:
    """Write tensors in their order and flush them to disk; ``contents`` are the bytes of all of them, in parts of any length."""
    header: dict[str, Any] = {_METADATA: dict(metadata)}
    begin = 0
    for name, place in tensors.items():
        header[name] = {"dtype": place.dtype, "shape": list(place.shape), "data_offsets": [begin, begin + place.size_bytes]}
        begin += place.size_bytes
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % _LENGTH_BYTES)  # numbers begin at a multiple of eight
    written = 0
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(_LENGTH_BYTES, "little"))
        file.write(encoded)
        for part in contents:
            written += len(part)
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    if written != begin:
        raise RuntimeError(f"{path}: {written:,} bytes of numbers were given where {begin:,} were announced")
