"""Lines of a UTF-8 file, with the line number in every complaint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from xlm.errors import UserError


def utf8_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file without their ends; raises UserError (with the line) for what is not UTF-8.

    Lines end at a line feed alone: characters such as U+2028 may stand inside a sentence, and a
    parallel file would fall out of step if they counted.
    """
    try:
        with path.open("rb") as stream:
            for number, raw in enumerate(stream, start=1):
                try:
                    line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise UserError(
                        f"not valid UTF-8 at byte {error.start + 1} of this line; save the file as UTF-8.", file=path, line=number
                    ) from None
                yield line.rstrip("\r\n")
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror}).", file=path) from None
