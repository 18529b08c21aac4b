"""The files that are open now: the least recently used are let go."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import TypeVar

File = TypeVar("File")


class MappedFiles:
    """At most ``max_files`` files of together ``max_bytes`` (None: any size), but always the last one put.

    Files of several kinds (classes) share the room. One that is let go stays mapped for as long as somebody holds a view of it.
    """

    def __init__(self, max_files: int, max_bytes: int | None = None) -> None:
        self._max_files, self._max_bytes = max_files, max_bytes
        self._files: OrderedDict[tuple[type[object], Hashable], tuple[object, int]] = OrderedDict()
        self._bytes = 0

    def get(self, kind: type[File], key: Hashable) -> File | None:
        """Return a file that is open; None for one that is not."""
        found = self._files.get((kind, key))
        if found is None:
            return None
        self._files.move_to_end((kind, key))
        file = found[0]
        return file if isinstance(file, kind) else None

    def put(self, key: Hashable, file: object, size_bytes: int) -> None:
        """Keep a file that was not open, and let go of others to make room."""
        self._files[type(file), key] = (file, size_bytes)
        self._bytes += size_bytes
        while len(self._files) > 1 and (len(self._files) > self._max_files or self._bytes > (self._max_bytes or self._bytes)):
            _, (_, of_oldest) = self._files.popitem(last=False)
            self._bytes -= of_oldest
