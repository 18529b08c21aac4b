"""Uploading a finished shards folder, so that machines without a shared disk can read it.

``stage.json`` comes last and, where other files change, goes first: until it is there again nobody begins
to read. ``published.json`` at the URL says with which content each file was uploaded; a file that it
names, and that still has its size, is not uploaded again. It is written every few seconds, so that a killed
upload goes on where it was. Contents that are known already are not hashed again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from xlm.errors import UserError
from xlm.runs.fingerprint import file_sha256
from xlm.runs.progress import Progress
from xlm.runs.stage import RECORD, read_record
from xlm.storage.remote import RemoteFolder, RemoteReadError, reason

MANIFEST = "published.json"
_MANIFEST_EVERY_S = 10.0
_UPLOADS_AT_ONCE = 8

Content = tuple[int, str]  # size in bytes, SHA-256


@dataclass(frozen=True)
class PublishSummary:
    """How many files went up, how many were there already, and the bytes that went up."""

    uploaded: int
    skipped: int
    bytes: int


def publish(folder: Path, url: str, known: Mapping[str, Content]) -> PublishSummary:
    """Make ``url`` hold exactly the finished shards of ``folder``.

    ``known`` says what files contain, by path in the folder; the others are hashed, and go up after those.
    Raises UserError where the folder is not finished, a known file is not there in its size, or the URL cannot be written.
    """
    read_record(folder)
    return _Upload(folder, RemoteFolder(url), known).run()


class _Upload:
    def __init__(self, folder: Path, remote: RemoteFolder, known: Mapping[str, Content]) -> None:
        self._folder, self._remote, self._known = folder, remote, known
        self._manifest: dict[str, Content] = self._read_manifest()

    def run(self) -> PublishSummary:
        here = self._contents()
        there = self._sizes()
        missing = [path for path, content in here.items() if self._manifest.get(path) != content or there.get(path) != content[0]]
        stale = [path for path in self._manifest if path not in here]
        if (missing or stale) and RECORD in there:
            self._write(partial(self._remote.files.rm_file, self._remote.at(RECORD)), RECORD)
            missing = sorted({*missing, RECORD})
        if missing:
            self._make_folders(missing)
            for path in missing:  # what is half written must not pass for what was there before
                self._manifest.pop(path, None)
            self._write_manifest()
            self._put_all([path for path in missing if path in self._known], here)
            for path in (*(path for path in missing if path not in self._known and path != RECORD), RECORD):
                self._put(path)
                self._manifest[path] = here[path]
        for path in stale:
            if path in there:
                self._write(partial(self._remote.files.rm_file, self._remote.at(path)), path)
            del self._manifest[path]
        if missing or stale:
            self._write_manifest()
        return PublishSummary(len(missing), len(here) - len(missing), sum(here[path][0] for path in missing))

    def _contents(self) -> dict[str, Content]:
        """Return size and SHA-256 of every file of the folder, by path in it; hidden files are no part of it."""
        files = [path for path in sorted(self._folder.rglob("*")) if path.is_file() and not path.name.startswith(".")]
        sizes = {path.relative_to(self._folder).as_posix(): path.stat().st_size for path in files}
        for path, (size, _) in self._known.items():
            if sizes.get(path) != size:
                found = f"{sizes[path]:,} bytes" if path in sizes else "no such file"
                raise UserError(
                    f"{found} found, {size:,} bytes expected; delete this shards folder and build it again.", file=self._folder / path
                )
        return {path: self._known.get(path) or (size, file_sha256(self._folder / path)) for path, size in sizes.items()}

    def _sizes(self) -> dict[str, int]:
        """Return the size of every file at the URL, by path below it."""
        root = self._remote.at("")
        try:
            found: dict[str, dict[str, Any]] = self._remote.files.find(root.rstrip("/"), detail=True)
        except FileNotFoundError:
            return {}
        except Exception as error:  # noqa: BLE001 (every storage has errors of its own)
            raise UserError(f"this URL could not be listed ({reason(error)}).", file=self._remote.shown) from None
        return {name[len(root) :]: int(entry["size"] or 0) for name, entry in found.items() if name.startswith(root)}

    def _make_folders(self, paths: list[str]) -> None:
        for parent in sorted({Path(path).parent.as_posix() for path in (*paths, RECORD)}):
            at = self._remote.at("" if parent == "." else parent).rstrip("/")
            self._write(partial(self._remote.files.makedirs, at, exist_ok=True), parent)

    def _put_all(self, paths: list[str], here: dict[str, Content]) -> None:
        written = time.monotonic()
        with Progress("upload", total=len(paths), unit="files") as progress, ThreadPoolExecutor(_UPLOADS_AT_ONCE) as pool:
            waiting = {pool.submit(self._put, path): path for path in paths}
            try:
                while waiting:
                    done = wait(waiting, return_when=FIRST_COMPLETED).done
                    for future in sorted(done, key=lambda future: future.exception() is not None):
                        path = waiting.pop(future)
                        future.result()
                        self._manifest[path] = here[path]
                        progress.advance(note=path)
                    if time.monotonic() - written > _MANIFEST_EVERY_S:
                        self._write_manifest()
                        written = time.monotonic()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                with suppress(UserError):
                    self._write_manifest()
                raise

    def _put(self, path: str) -> None:
        self._write(partial(self._remote.files.put_file, str(self._folder / path), self._remote.at(path)), path)

    def _write(self, work: Callable[[], object], path: str) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 (every storage has errors of its own)
            raise UserError(
                f"this could not be written ({reason(error)}); shards.storage.url must be a place that this machine may write to. "
                "Run the same command again to go on.",
                file=self._remote.shown_file(path),
            ) from None

    def _read_manifest(self) -> dict[str, Content]:
        """Return what was uploaded before; nothing where there is no manifest, or only half of one."""
        try:
            found = json.loads(b"".join(self._remote.read(MANIFEST)))
            return {str(path): (int(size), str(sha256)) for path, (size, sha256) in found.items()}
        except RemoteReadError as error:
            if error.worth_retrying:
                raise UserError(error.sentence, file=error.file) from None
            return {}
        except (ValueError, TypeError, AttributeError):
            return {}

    def _write_manifest(self) -> None:
        content = json.dumps(self._manifest, indent=0, sort_keys=True).encode()
        self._write(partial(self._remote.files.pipe_file, self._remote.at(MANIFEST), content), MANIFEST)
