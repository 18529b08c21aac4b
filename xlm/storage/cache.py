"""Files of together bounded size in a folder, shared by all processes of a machine; a file's name is its SHA-256.

Files of other names are somebody else's: they are neither counted nor removed.

Complete or invisible: a file is written as ``.<sha256>.partial``, hashed on the way, and renamed. The
partial file is its own lock (`flock`), so that of several processes that want a file one fetches and the
others wait for it; the system lets go of the lock when a process ends, however it ends, and what it left is
then taken over or cleared away. A partial file has its full size from the beginning: the sizes in the folder
add up to what is there and what is on its way, and never exceed the bound.

The least recently used files go first. A file that was just handed out is locked (shared) until its thread
asks for the next one, so that it is not evicted between being handed out and being opened. Evicting a file
that somebody has mapped is safe: POSIX takes away the name only, and keeps the content until the last
mapping is gone. Its disk space returns then, too; so whoever maps files bounds how many he keeps open.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from xlm.errors import UserError

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

PARTIAL = ".partial"
LOCK = ".lock"
_OWN = re.compile(rf"[0-9a-f]{{64}}|\.[0-9a-f]{{64}}{re.escape(PARTIAL)}")
# How long to wait for files that other processes are fetching or about to open.
ROOM_WAIT_S = 120.0
_POLL_S = 0.02


class DamagedFileError(Exception):
    """What was fetched is not what was asked for."""

    def __init__(self, sha256: str | None, size_bytes: int) -> None:
        """``sha256`` is None where the size alone says so."""
        super().__init__()
        self.sha256, self.size_bytes = sha256, size_bytes


class FileCache:
    """Files by their SHA-256 in ``folder``, of ``max_bytes`` together at most."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """Open the cache, making its folder; raises UserError where that cannot hold locks."""
        if fcntl is None:
            raise UserError("shards that lie elsewhere need a POSIX system; copy them here and take shards.storage out of the recipe.")
        self.folder, self.max_bytes = folder, max_bytes
        self.hits = self.evictions = 0
        self._held: dict[int, int] = {}  # thread -> descriptor of the file it was handed last
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self._cannot_write(error)
        with self._locked():
            pass

    def __del__(self) -> None:
        for descriptor in getattr(self, "_held", {}).values():
            os.close(descriptor)

    def get(self, sha256: str, size_bytes: int, fetch: Callable[[], Iterable[bytes]]) -> Path:
        """Return a file of this content, from the cache or from the chunks of ``fetch()``.

        Raises DamagedFileError for chunks of other content, whatever ``fetch`` raises, and UserError for a file
        that has no place here.
        """
        if size_bytes > self.max_bytes:
            raise UserError(
                f"a file of {size_bytes:,} bytes has no place in a cache of {self.max_bytes:,}; raise shards.storage.cache_gib "
                f"to {size_bytes / 2**30:.3g} at the very least, or build smaller shards (shards.items_per_shard).",
                file=self.folder,
            )
        if self._take(sha256, size_bytes):
            self.hits += 1
            return self.folder / sha256
        while not self._take(sha256, size_bytes):
            with self._only_fetcher(sha256) as partial:
                if partial is not None and not (self.folder / sha256).exists():
                    self._make_room(size_bytes, partial)
                    self._fill(sha256, size_bytes, partial, fetch())
        return self.folder / sha256

    def _take(self, sha256: str, size_bytes: int) -> bool:
        """Hold a complete file for this thread and mark it as used; False where there is none."""
        path = self.folder / sha256
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # waits a moment where it is being evicted
        found = os.fstat(descriptor)
        if found.st_nlink and found.st_size == size_bytes:
            with suppress(PermissionError):
                os.utime(descriptor)
            self._hold(descriptor)
            return True
        if found.st_nlink:  # somebody cut it short; a complete one takes its place
            path.unlink(missing_ok=True)
        os.close(descriptor)
        return False

    def _hold(self, descriptor: int | None) -> None:
        """Let go of what this thread held, and of what ended threads did; hold ``descriptor`` instead."""
        alive = {thread.ident for thread in threading.enumerate()}
        for thread in [thread for thread in tuple(self._held) if thread == threading.get_ident() or thread not in alive]:
            if (held := self._held.pop(thread, None)) is not None:  # another thread may have been faster
                os.close(held)
        if descriptor is not None:
            self._held[threading.get_ident()] = descriptor

    @contextmanager
    def _only_fetcher(self, sha256: str) -> Iterator[int | None]:
        """Yield the locked, empty partial file of a content; None where another process was at it meanwhile."""
        path = self.folder / f".{sha256}{PARTIAL}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            while not _try_lock(descriptor):
                # Not waited for in the kernel: the file may meanwhile have got its final name, and then those who
                # read it hold it as long as they like.
                if not _is_at(descriptor, path):
                    yield None
                    return
                time.sleep(_POLL_S)
            if not _is_at(descriptor, path):
                yield None
                return
            os.ftruncate(descriptor, 0)  # what a killed process left
            try:
                yield descriptor
            finally:
                if _is_at(descriptor, path):
                    path.unlink()
        finally:
            os.close(descriptor)

    def _make_room(self, size_bytes: int, partial: int) -> None:
        """Evict until ``partial`` can have its full size, and give it that."""
        give_up = time.monotonic() + ROOM_WAIT_S
        while True:
            with self._locked():
                if self._evict_down_to(self.max_bytes - size_bytes):
                    os.ftruncate(partial, size_bytes)
                    return
            self._hold(None)  # this thread has long opened what it was handed
            if time.monotonic() > give_up:
                raise UserError(
                    f"no room for a file of {size_bytes:,} bytes in a cache of {self.max_bytes:,} for {ROOM_WAIT_S:.0f} s, because "
                    "other processes are using all of it; raise shards.storage.cache_gib.",
                    file=self.folder,
                )
            time.sleep(_POLL_S)

    def _evict_down_to(self, allowed_bytes: int) -> bool:
        """Remove files that nobody holds, those of killed processes first, then the least recently used; True where enough went."""
        found = []
        for entry in os.scandir(self.folder):
            if not _OWN.fullmatch(entry.name):
                continue
            with suppress(FileNotFoundError):
                state = entry.stat()
                found.append((not entry.name.endswith(PARTIAL), state.st_mtime_ns, state.st_size, entry.name))
        used = sum(size for _, _, size, _ in found)
        for _, _, size, name in sorted(found):
            if used <= allowed_bytes:
                break
            if size and self._remove_unless_held(self.folder / name):
                used -= size
                self.evictions += 1
        return used <= allowed_bytes

    def _remove_unless_held(self, path: Path) -> bool:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A partial file may have become a complete one since the folder was read; then it stays.
            if not _is_at(descriptor, path):
                return False
            path.unlink()
            return True
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)

    def _fill(self, sha256: str, size_bytes: int, partial: int, chunks: Iterable[bytes]) -> None:
        digest, written = hashlib.sha256(), 0
        with os.fdopen(partial, "r+b", closefd=False) as stream:
            for chunk in chunks:
                written += len(chunk)
                if written > size_bytes:
                    raise DamagedFileError(None, written)
                digest.update(chunk)
                try:
                    stream.write(chunk)
                except OSError as error:
                    self._cannot_write(error)
            try:
                stream.flush()
                os.fsync(partial)
            except OSError as error:
                self._cannot_write(error)
        if written < size_bytes:
            raise DamagedFileError(None, written)
        if digest.hexdigest() != sha256:
            raise DamagedFileError(digest.hexdigest(), written)
        with self._locked():  # or whoever adds up sizes just now might see neither name
            (self.folder / f".{sha256}{PARTIAL}").rename(self.folder / sha256)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock under which sizes are added up, files evicted and partial files given their size and their name."""
        try:
            descriptor = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            self._cannot_write(error)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        except OSError as error:
            self._cannot_write(error)
        finally:
            os.close(descriptor)

    def _cannot_write(self, error: OSError) -> NoReturn:
        raise UserError(
            f"the cache of shards cannot be written here ({(error.strerror or str(error)).lower()}); "
            "set XLM_SHARD_CACHE to a folder on a local disk with room for shards.storage.cache_gib.",
            file=self.folder,
        ) from None


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file still has this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
