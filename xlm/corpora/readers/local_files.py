"""A user's own files, read through `datasets` in streaming mode (no copy in a cache, no memory for the whole)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xlm.corpora.drops import DropCounts
from xlm.corpora.manifest import FilesSource, JsonLinesFormat, ParquetFormat, TextFormat
from xlm.corpora.readers.lines import utf8_lines
from xlm.corpora.records import RawText, Record
from xlm.errors import UserError

# The names under which `datasets` knows the formats.
_SAMPLE_BY = {"line": "line", "paragraph": "paragraph", "file": "document"}


def read_files(source: FilesSource, drops: DropCounts) -> Iterator[Record]:
    """Yield one running text a document of every file; documents without text are counted."""
    for path in source.paths:
        if not path.is_file():
            raise UserError(f"source '{source.name}' names this file, which does not exist.", file=path)
        if isinstance(source.format, TextFormat):
            _check_utf8(path)
        elif isinstance(source.format, JsonLinesFormat):
            _check_json_lines(path, source.format.text_field)
        field = "text" if isinstance(source.format, TextFormat) else source.format.text_field
        for number, row in enumerate(_rows(path, source.format), start=1):
            text = row.get(field)
            if isinstance(text, str) and text.strip():
                yield RawText(f"{path.name}:{number}", text, source.language, "running")
            elif text is None or isinstance(text, str):
                drops.add(source.language, source.name, "no text")
            else:
                raise UserError(f"field '{field}' of document {number} holds a {type(text).__name__}; text is expected.", file=path)


def _rows(path: Path, layout: TextFormat | JsonLinesFormat | ParquetFormat) -> Iterator[dict[str, Any]]:
    import datasets  # here, because importing it takes seconds and most manifests have no local files

    files = [str(path)]
    try:
        if isinstance(layout, TextFormat):
            rows = datasets.load_dataset("text", data_files=files, split="train", streaming=True, sample_by=_SAMPLE_BY[layout.document])
        elif isinstance(layout, JsonLinesFormat):
            rows = datasets.load_dataset("json", data_files=files, split="train", streaming=True)
        else:
            _check_column(path, layout.text_field)
            rows = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True, columns=[layout.text_field])
        yield from rows
    except (datasets.exceptions.DatasetsError, ValueError) as error:  # what pyarrow raises is a ValueError
        raise UserError(f"`datasets` cannot read this file ({str(error).splitlines()[0]}).", file=path) from None


def _check_utf8(path: Path) -> None:
    for _ in utf8_lines(path):
        pass


def _check_json_lines(path: Path, field: str) -> None:
    """Check every line, because what `datasets` says about a broken one names no line."""
    for number, line in enumerate(utf8_lines(path), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"not valid JSON ({error.msg}).", file=path, line=number) from None
        if not isinstance(row, dict):
            raise UserError("a JSON object is expected in each line.", file=path, line=number)
        if field not in row:
            raise UserError(f"this line has no field '{field}'; it has: {', '.join(sorted(row)) or 'none'}.", file=path, line=number)


def _check_column(path: Path, field: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(path).names
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"this is not a parquet file ({str(error).splitlines()[0]}).", file=path) from None
    if field not in names:
        raise UserError(f"this file has no column '{field}'; it has: {', '.join(names)}.", file=path)
