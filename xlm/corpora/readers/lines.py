"""Lines of a UTF-8 file, with the line number in every complaint."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

from xlm.errors import UserError

# First bytes that no UTF-8 text has, and what such a file is. UTF-32 stands first: its mark begins like that of UTF-16.
_OTHER_KINDS = (
    (b"\x1f\x8b", "this file is compressed with gzip; unpack it (gunzip) and name the unpacked file."),
    (codecs.BOM_UTF32_LE, "this file is UTF-32; save it as UTF-8."),
    (codecs.BOM_UTF16_LE, "this file is UTF-16; save it as UTF-8."),
    (codecs.BOM_UTF16_BE, "this file is UTF-16; save it as UTF-8."),
)


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
                    other = next((sentence for mark, sentence in _OTHER_KINDS if number == 1 and raw.startswith(mark)), None)
                    if other is not None:
                        raise UserError(other, file=path) from None
                    raise UserError(
                        f"not valid UTF-8 at byte {error.start + 1} of this line; save the file as UTF-8.", file=path, line=number
                    ) from None
                yield line.rstrip("\r\n")
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror}).", file=path) from None
