"""A user's own files, read in a stream (no copy in a cache, no memory for the whole): exactly the file that is named.

Text and JSON lines are read here, line by line, because only so can every complaint name its line and a
field that nobody asked for be of any type. Parquet is read through `datasets`.
"""

from __future__ import annotations

import glob
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from xlm.corpora.drops import DropCounts
from xlm.corpora.manifest import FilesSource, JsonLinesFormat, ParquetFormat, TextFormat
from xlm.corpora.readers.lines import utf8_lines
from xlm.corpora.records import RawText, Record
from xlm.errors import UserError


def read_files(source: FilesSource, drops: DropCounts) -> Iterator[Record]:
    """Yield one running text a document of every file; documents without text are counted."""
    for path in source.paths:
        if not path.is_file():
            raise UserError(f"source '{source.name}' names this file, which does not exist.", file=path)
        for number, text in enumerate(_texts(path, source.format), start=1):
            if text is not None and text.strip():
                yield RawText(f"{path.name}:{number}", text, source.language, "running")
            else:
                drops.add(source.language, source.name, "no text")


def _texts(path: Path, layout: TextFormat | JsonLinesFormat | ParquetFormat) -> Iterator[str | None]:
    if isinstance(layout, TextFormat):
        return _plain_texts(path, layout)
    if isinstance(layout, JsonLinesFormat):
        return _json_texts(path, layout.text_field)
    return _parquet_texts(path, layout.text_field)


def _plain_texts(path: Path, layout: TextFormat) -> Iterator[str]:
    if layout.document == "line":
        yield from utf8_lines(path)
    elif layout.document == "file":
        yield "\n".join(utf8_lines(path))
    else:
        paragraph: list[str] = []
        for line in utf8_lines(path):
            if line.strip():
                paragraph.append(line)
            elif paragraph:
                yield "\n".join(paragraph)
                paragraph = []
        if paragraph:
            yield "\n".join(paragraph)


def _json_texts(path: Path, field: str) -> Iterator[str | None]:
    for number, line in enumerate(utf8_lines(path), start=1):
        if not line.strip():
            continue
        try:
            # Numbers are never text, and Python refuses to make one of thousands of digits: none is made.
            row = json.loads(line, parse_int=lambda _: 0)
        except json.JSONDecodeError as error:
            raise UserError(f"not valid JSON ({error.msg}).", file=path, line=number) from None
        except RecursionError:
            raise UserError("this JSON is nested too deeply to be read; leave the nested field out.", file=path, line=number) from None
        if not isinstance(row, dict):
            raise UserError("a JSON object is expected in each line.", file=path, line=number)
        if field not in row:
            raise UserError(f"this line has no field '{field}'; it has: {', '.join(sorted(row)) or 'none'}.", file=path, line=number)
        text = row[field]
        if not isinstance(text, str | None):
            raise UserError(f"field '{field}' holds {type(text).__name__}; text or null is expected.", file=path, line=number)
        if text is not None and not _is_unicode(text):
            raise UserError(
                f"field '{field}' holds half of a surrogate pair (\\ud800 to \\udfff), which is no text.", file=path, line=number
            )
        yield text


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parquet_texts(path: Path, field: str) -> Iterator[str | None]:
    import datasets  # here, because importing it takes seconds and most manifests have no parquet files

    _check_parquet(path, field)
    # `datasets` takes a path for a pattern or a URL ("[1]", "?", "*", "::") and would read another file, so it
    # is given a plain name for exactly this one.
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "texts.parquet"
        plain.symlink_to(path.resolve())
        try:
            rows = datasets.load_dataset("parquet", data_files=[glob.escape(str(plain))], split="train", streaming=True, columns=[field])
            for number, row in enumerate(rows, start=1):
                text = row[field]
                if not isinstance(text, str | None):
                    raise UserError(f"column '{field}' holds {type(text).__name__} in row {number}; text is expected.", file=path)
                yield text
        except (datasets.exceptions.DatasetsError, ValueError, OSError) as error:  # pyarrow: ValueError, and OSError for damaged pages
            raise UserError(
                f"this parquet file is damaged or cannot be read ({_first_line(error)}); make or fetch it again.", file=path
            ) from None


def _check_parquet(path: Path, field: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as stream:
            file = pq.ParquetFile(stream)
            names, rows = file.schema_arrow.names, file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"this is not a parquet file ({_first_line(error)}).", file=path) from None
    if field not in names:
        raise UserError(f"this file has no column '{field}'; it has: {', '.join(names)}.", file=path)
    if names.count(field) > 1:
        raise UserError(f"this file has {names.count(field)} columns named '{field}'; one is expected, so rename the others.", file=path)
    if rows == 0:
        raise UserError("this parquet file has no rows; give one with text or take it out of the manifest.", file=path)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__).rstrip(". ")
