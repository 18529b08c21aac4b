"""A folder at a URL: the one place that imports fsspec, and only where a recipe names a URL.

Credentials, endpoints and other options of a storage are fsspec's own (its configuration files and
``FSSPEC_...`` variables), so that none stands in a recipe.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from xlm.errors import UserError, suggest

_CHUNK_BYTES = 4 << 20


class RemoteReadError(Exception):
    """A file that could not be read, as a sentence; ``worth_retrying`` where the network may be to blame."""

    def __init__(self, sentence: str, file: str, *, worth_retrying: bool) -> None:
        super().__init__(sentence)
        self.sentence, self.file, self.worth_retrying = sentence, file, worth_retrying


class RemoteFolder:
    """Reads and writes files below a URL."""

    def __init__(self, url: str) -> None:
        """Open the URL's file system; raises UserError for a kind that fsspec does not know, or whose package is missing."""
        self.url = url
        self.shown = re.sub(r"//[^/@]*@", "//", url.rstrip("/"))  # no passwords in messages
        self.files, self.root = _file_system(url, self.shown)
        # Of HTTP a stream (block size 0): blocks would need a server that sends parts of a file.
        self._streams = url.startswith(("http://", "https://"))

    def shown_file(self, path: str) -> str:
        """Return a file's URL for messages."""
        return f"{self.shown}/{path}"

    def at(self, path: str) -> str:
        """Return a file's path in the terms of the file system."""
        return f"{self.root.rstrip('/')}/{path}"

    def read(self, path: str) -> Iterator[bytes]:
        """Yield a file's content in chunks; raises RemoteReadError."""
        try:
            with self.files.open(self.at(path), "rb", block_size=0 if self._streams else _CHUNK_BYTES) as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    yield bytes(chunk)
        except Exception as error:  # noqa: BLE001 (every storage has errors of its own)
            raise _read_error(error, self.shown_file(path)) from None


def _read_error(error: Exception, file: str) -> RemoteReadError:
    """Sort what a storage raised: not there, not allowed, or something that may be over in a moment."""
    # fsspec's HTTP says that a file is not there whatever went wrong, and keeps what did as the cause.
    cause = error.__cause__ if isinstance(error, FileNotFoundError) and isinstance(error.__cause__, Exception) else error
    status = getattr(cause, "status", None)
    if isinstance(cause, PermissionError) or status in (401, 403):
        return RemoteReadError(
            f"this file may not be read ({reason(cause)}); give this machine the storage's credentials.", file, worth_retrying=False
        )
    of_network = isinstance(cause, OSError) or type(cause).__module__.startswith("aiohttp")
    if isinstance(cause, FileNotFoundError) or status in (404, 410) or (isinstance(error, FileNotFoundError) and not of_network):
        return RemoteReadError(
            "this file is not there; publish the shards with pipelines/build_shards.py, or correct shards.storage.url.",
            file,
            worth_retrying=False,
        )
    return RemoteReadError(
        f"this file could not be fetched, and trying again did not help ({reason(cause)}); "
        "check the network and the storage, then run the same command again.",
        file,
        worth_retrying=True,
    )


def _file_system(url: str, shown: str) -> tuple[Any, str]:
    import fsspec
    from fsspec.registry import known_implementations

    protocol = url.split("://", 1)[0] if "://" in url else ""
    known: Any = known_implementations
    if protocol not in fsspec.available_protocols():
        raise UserError(
            f"shards.storage.url is '{shown}', which is no kind of URL that fsspec opens{suggest(protocol, known)}; "
            "it looks like s3://bucket/shards, gs://bucket/shards or https://host/shards."
        )
    try:
        files, root = fsspec.core.url_to_fs(url)
    except ImportError:
        package = known[protocol]["class"].split(".")[0]
        raise UserError(f"shards.storage.url is '{shown}', and opening it needs the package {package}: pip install {package}.") from None
    return files, str(root)


def reason(error: BaseException) -> str:
    """Return an error's message as part of a sentence."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) < 200 else text[:200] + "..."
