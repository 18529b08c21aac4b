"""Wheels read as archives: nothing is extracted, nothing is imported, nothing can climb out or blow up."""

from __future__ import annotations

import re
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from types import TracebackType

from xlm.errors import UserError

MAX_MEMBER_BYTES = 256 << 20
MAX_TOTAL_BYTES = 8 << 30


class Archive:
    """A zip file whose member names and sizes were checked when it was opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError) as error:
            raise UserError(f"this archive cannot be opened ({error}); remove it, so that it is fetched again.", file=path) from None
        self._members = {info.filename: info for info in self._zip.infolist() if not info.is_dir()}
        total = 0
        for info in self._zip.infolist():
            _check_name(info.filename, path)
            total += info.file_size
        if total > MAX_TOTAL_BYTES:
            raise UserError(f"this archive unpacks to {total:,} bytes; at most {MAX_TOTAL_BYTES:,} are allowed.", file=path)

    def members(self, pattern: str, language_code: str) -> list[str]:
        """Return the sorted names that match ``pattern``: `*` inside one folder, `**` across, ``{language}`` the code."""
        expression = member_expression(pattern, language_code)
        return sorted(name for name in self._members if expression.fullmatch(name))

    def has(self, name: str) -> bool:
        """Return whether there is a member of exactly this name."""
        return name in self._members

    def read(self, name: str) -> bytes:
        """Return a member's bytes; a UserError for one that is too large, encrypted or damaged."""
        info = self._members[name]
        if info.file_size > MAX_MEMBER_BYTES:
            raise UserError(
                f"member '{name}' unpacks to {info.file_size:,} bytes; at most {MAX_MEMBER_BYTES:,} are allowed for one file.",
                file=self.path,
            )
        try:
            # zipfile stops at the declared size, so a member cannot be larger than what was just checked.
            return self._zip.read(info)
        except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError, OSError) as error:
            raise UserError(
                f"member '{name}' cannot be read ({error}); remove the archive, so that it is fetched again.", file=self.path
            ) from None

    def read_text(self, name: str) -> str:
        """Return a member as UTF-8 text (a byte order mark is dropped); a UserError names the line that is not UTF-8."""
        data = self.read(name)
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise UserError(f"not valid UTF-8 in line {line} of this archive's member.", file=f"{self.path}/{name}", line=line) from None

    def close(self) -> None:
        """Close the file."""
        self._zip.close()

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def member_expression(pattern: str, language_code: str) -> re.Pattern[str]:
    """Translate a member pattern of a manifest to a regular expression."""
    pieces = []
    for piece in re.split(r"(\{language\}|\*\*/?|\*)", pattern):
        if piece == "{language}":
            pieces.append(re.escape(language_code))
        elif piece == "**/":
            pieces.append(r"(?:[^/]+/)*")
        elif piece == "**":
            pieces.append(".*")
        elif piece == "*":
            pieces.append("[^/]*")
        else:
            pieces.append(re.escape(piece))
    return re.compile("".join(pieces))


def _check_name(name: str, path: Path) -> None:
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or re.match(r"^[A-Za-z]:", name) or "\0" in name:
        raise UserError(f"member '{name}' would climb out of the archive; this file is not a proper wheel and is not read.", file=path)
