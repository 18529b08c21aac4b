"""Where the files of a shards folder are: in a folder, or at a URL with a cache on this machine.

Readers ask a store for each file when they first need it, with the checksum that the index gives it, so
that a machine fetches only what its ranks read.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from xlm.config.recipe import StorageSection
from xlm.errors import UserError
from xlm.runs.cli import cache_folder
from xlm.runs.stage import RECORD, StageRecord, read_record
from xlm.storage.cache import DamagedFileError, FileCache
from xlm.storage.remote import RemoteFolder, RemoteReadError

CACHE_VARIABLE = "XLM_SHARD_CACHE"
# Of what the cache may hold: how much of it one process may keep mapped.
MAPPED_SHARE = 1 / 8
# Seconds before each new try of what the network refused: a server that restarts is back by then.
RETRY_WAITS_S = (1.0, 4.0, 10.0)

Value = TypeVar("Value")


@dataclass(frozen=True)
class StoreStatistics:
    """What a store did so far in this process: files and bytes fetched, files found in the cache, files evicted."""

    fetches: int = 0
    fetched_bytes: int = 0
    hits: int = 0
    evictions: int = 0

    def metrics(self) -> dict[str, float]:
        """Return the numbers under the names that they are logged with."""
        return {f"shards/{name}": float(value) for name, value in asdict(self).items()}


class ShardStore(Protocol):
    """A shards folder, wherever it lies; can be pickled."""

    @property
    def location(self) -> str:
        """The folder or URL, for messages."""

    @property
    def max_mapped_bytes(self) -> int | None:
        """How much of its files a process may keep mapped; None: as much as it likes."""

    def local(self, path: str, sha256: str, size_bytes: int) -> Path:
        """Return a local file with the content of ``path`` (relative to the shards folder).

        Open it before this thread asks for the next one; once it is open, nothing can take it away.
        """

    def fresh(self, path: str) -> Path:
        """Return a local file with what ``path`` is now; for files that no index gives a checksum (``index.json``).

        The name of the local file may be another one. A store answers the same for the rest of its life,
        and so do its pickled copies.
        """

    def record(self) -> StageRecord:
        """Return the record of the stage that built the shards; raises UserError where it has not finished."""

    def statistics(self) -> StoreStatistics:
        """Return what was fetched so far."""


def open_store(storage: StorageSection | None, folder: Path) -> ShardStore:
    """Return the shards of a recipe: at ``storage.url`` where that is set, else in the run's shards folder."""
    if storage is None:
        return LocalStore(folder)
    return RemoteStore(storage.url, shard_cache_folder(), int(storage.cache_gib * 2**30))


def shard_cache_folder() -> Path:
    """Return where fetched shards are kept: ``xlm-shards/`` in ``$XLM_SHARD_CACHE``, else ``shards/`` in the cache of downloads.

    A folder of their own, whatever else is in the one that a user names.
    """
    return Path(os.environ[CACHE_VARIABLE]) / "xlm-shards" if os.environ.get(CACHE_VARIABLE) else cache_folder() / "shards"


@dataclass(frozen=True)
class LocalStore:
    """A shards folder on a disk that this machine sees; files are opened where they are."""

    folder: Path

    @property
    def location(self) -> str:
        """The folder."""
        return str(self.folder)

    @property
    def max_mapped_bytes(self) -> None:
        """No bound: a mapped file takes no room of its own on the disk."""

    def local(self, path: str, sha256: str, size_bytes: int) -> Path:
        """Return ``folder/path``; nothing is checked, since the stage that wrote it was complete."""
        return self.folder / path

    def fresh(self, path: str) -> Path:
        """Return ``folder/path``."""
        return self.folder / path

    def record(self) -> StageRecord:
        """Return the stage's record; raises UserError where the stage has not finished."""
        return read_record(self.folder)

    def statistics(self) -> StoreStatistics:
        """Return zeros: nothing is fetched."""
        return StoreStatistics()


class RemoteStore:
    """A shards folder at any URL that fsspec opens, behind a cache that all processes of this machine share.

    The cache's folder never holds more than ``max_bytes``. Files that it evicted while processes had them mapped keep
    their room on the disk until those let go: of each process at most `max_mapped_bytes` (or one file, where that is larger),
    and what the batches it is just building still show.
    """

    def __init__(self, url: str, cache_folder: Path, max_bytes: int) -> None:
        """Open URL and cache; raises UserError for a URL of unknown kind, or of one whose package is missing."""
        self._remote = RemoteFolder(url)
        self._cache = FileCache(cache_folder, max_bytes)
        self._fresh: dict[str, tuple[str, int]] = {}  # what files without a checksum were when first asked for
        self._fetches = self._fetched_bytes = 0

    @property
    def location(self) -> str:
        """The URL, without passwords."""
        return self._remote.shown

    @property
    def max_mapped_bytes(self) -> int:
        """An eighth of the cache."""
        return int(self._cache.max_bytes * MAPPED_SHARE)

    def local(self, path: str, sha256: str, size_bytes: int) -> Path:
        """Return the cached file, fetched first if need be.

        Raises UserError, naming URL and file, where it is not there, not readable or damaged.
        """
        tried_again = False
        while True:
            try:
                return self._insisting(lambda: self._cache.get(sha256, size_bytes, lambda: self._chunks(path)))
            except DamagedFileError as damaged:
                if tried_again:
                    raise UserError(_damage(damaged, sha256, size_bytes), file=self._remote.shown_file(path)) from None
                tried_again = True

    def fresh(self, path: str) -> Path:
        """Return a cached copy of what the file was when this store, or the one it is a copy of, first asked for it."""
        if path not in self._fresh:
            content = self._insisting(lambda: b"".join(self._chunks(path)))
            known = hashlib.sha256(content).hexdigest(), len(content)
            found = self._cache.get(*known, lambda: (content,))
            self._fresh[path] = known
            return found
        return self.local(path, *self._fresh[path])

    def record(self) -> StageRecord:
        """Return the stage's record; raises UserError where the URL has none, or none that can be read."""
        try:
            return StageRecord(**json.loads(self.fresh(RECORD).read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            raise UserError(
                "this stage record is damaged; publish the shards again with pipelines/build_shards.py.",
                file=self._remote.shown_file(RECORD),
            ) from None

    def statistics(self) -> StoreStatistics:
        """Return what this process fetched so far."""
        return StoreStatistics(self._fetches, self._fetched_bytes, self._cache.hits, self._cache.evictions)

    def _chunks(self, path: str) -> Iterator[bytes]:
        self._fetches += 1
        for chunk in self._remote.read(path):
            self._fetched_bytes += len(chunk)
            yield chunk

    def _insisting(self, work: Callable[[], Value]) -> Value:
        """Do what the network may refuse, again after a while."""
        for wait_s in (*RETRY_WAITS_S, None):
            try:
                return work()
            except RemoteReadError as error:
                if wait_s is None or not error.worth_retrying:
                    raise UserError(error.sentence, file=error.file) from None
                time.sleep(wait_s)
        raise AssertionError("unreachable")

    def __getstate__(self) -> dict[str, Any]:
        return {"remote": (self._remote.url, self._cache.folder, self._cache.max_bytes), "fresh": self._fresh}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(*state["remote"])  # type: ignore[misc]
        self._fresh = dict(state["fresh"])


def _damage(damaged: DamagedFileError, sha256: str, size_bytes: int) -> str:
    again = (
        "the file was damaged, or changed after the index was read; check the shards where they were built with "
        "pipelines/build_shards.py --verify, delete this file at the URL, and publish them again."
    )
    if damaged.sha256 is None:
        return f"{damaged.size_bytes:,} bytes or more came where the index says {size_bytes:,}; {again}"
    return f"the SHA-256 of what came is {damaged.sha256}, the index says {sha256}; {again}"
