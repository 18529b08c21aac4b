"""Documents and pairs on disk: one parquet file a language and one a pair, as docs/formats.md says.

Parquet, because everything else reads it (pyarrow, polars, `datasets`), and columns, because turning
hundreds of thousands of rows into Python objects one by one is the slow part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from xlm.corpora.documents import Document, SentencePair, pair_name, split_pair_name
from xlm.errors import UserError, suggest

DOCUMENT_SCHEMA = pa.schema(
    [("id", pa.string()), ("text", pa.string()), ("corpus", pa.string()), ("sentence_starts", pa.list_(pa.int32()))]
)
PAIR_SCHEMA = pa.schema([("key", pa.string()), ("source", pa.string()), ("target", pa.string()), ("corpus", pa.string())])
ROWS_PER_GROUP = 50_000


class _ColumnWriter:
    """One parquet file, filled a row at a time and flushed a row group at a time."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.rows = 0
        self._schema = schema
        self._columns: tuple[list[object], ...] = tuple([] for _ in schema)
        self._file = pq.ParquetWriter(path, schema, compression="zstd")

    def append(self, *values: object) -> None:
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)
        self.rows += 1
        if len(self._columns[0]) >= ROWS_PER_GROUP:
            self._flush()

    def _flush(self) -> None:
        arrays = [pa.array(column, type=field.type) for column, field in zip(self._columns, self._schema, strict=True)]
        self._file.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        for column in self._columns:
            column.clear()

    def close(self) -> None:
        if self._columns[0]:
            self._flush()
        self._file.close()


class CorpusWriter:
    """Write documents and pairs of all languages, in any order, to ``folder``; a file appears with its first row."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._documents: dict[str, _ColumnWriter] = {}
        self._pairs: dict[str, _ColumnWriter] = {}

    def document(self, document: Document) -> None:
        """Append one document to its language's file."""
        writer = self._documents.get(document.language)
        if writer is None:
            writer = _ColumnWriter(document_path(self._folder, document.language), DOCUMENT_SCHEMA)
            self._documents[document.language] = writer
        writer.append(document.id, document.text, document.corpus, document.sentence_starts)

    def pair(self, pair: SentencePair) -> None:
        """Append one pair to its pair corpus's file."""
        name = pair_name(pair.source_language, pair.target_language)
        writer = self._pairs.get(name)
        if writer is None:
            writer = self._pairs[name] = _ColumnWriter(pair_path(self._folder, name), PAIR_SCHEMA)
        writer.append(pair.key, pair.source, pair.target, pair.corpus)

    def __enter__(self) -> CorpusWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        for writer in (*self._documents.values(), *self._pairs.values()):
            writer.close()


def write_documents(folder: Path, language: str, documents: Iterable[Document]) -> int:
    """Write ``documents/<language>.parquet`` and return the number of rows."""
    writer = _ColumnWriter(document_path(folder, language), DOCUMENT_SCHEMA)
    try:
        for document in documents:
            writer.append(document.id, document.text, document.corpus, document.sentence_starts)
    finally:
        writer.close()
    return writer.rows


def write_pairs(folder: Path, name: str, pairs: Iterable[SentencePair]) -> int:
    """Write ``pairs/<name>.parquet`` and return the number of rows."""
    writer = _ColumnWriter(pair_path(folder, name), PAIR_SCHEMA)
    try:
        for pair in pairs:
            writer.append(pair.key, pair.source, pair.target, pair.corpus)
    finally:
        writer.close()
    return writer.rows


def read_documents(folder: Path, language: str) -> Iterator[Document]:
    """Yield the documents of one language in stored order; a UserError names the languages there are."""
    path = document_path(folder, language)
    if not path.exists():
        raise _missing(f"documents in '{language}'", language, document_languages(folder), folder)
    for ids, texts, corpora, starts in _column_batches(path, DOCUMENT_SCHEMA):
        for identity, text, corpus, offsets in zip(ids, texts, corpora, starts, strict=True):
            yield Document(identity, text, language, corpus, None if offsets is None else tuple(offsets))


def read_pairs(folder: Path, name: str) -> Iterator[SentencePair]:
    """Yield the pairs of one pair corpus in stored order; a UserError names the pair corpora there are."""
    path = pair_path(folder, name)
    if not path.exists():
        raise _missing(f"pair corpus '{name}'", name, pair_names(folder), folder)
    source_language, target_language = split_pair_name(name)
    for keys, sources, targets, corpora in _column_batches(path, PAIR_SCHEMA):
        for key, source, target, corpus in zip(keys, sources, targets, corpora, strict=True):
            yield SentencePair(key, source, target, source_language, target_language, corpus)


def document_languages(folder: Path) -> list[str]:
    """Return the languages that have documents, sorted."""
    return sorted(path.stem for path in (folder / "documents").glob("*.parquet"))


def pair_names(folder: Path) -> list[str]:
    """Return the names of the pair corpora, sorted."""
    return sorted(path.stem for path in (folder / "pairs").glob("*.parquet"))


def count_documents(folder: Path, language: str) -> int:
    """Return how many documents a language has, from the file's footer alone."""
    return int(pq.read_metadata(document_path(folder, language)).num_rows)


def count_pairs(folder: Path, name: str) -> int:
    """Return how many pairs a pair corpus has, from the file's footer alone."""
    return int(pq.read_metadata(pair_path(folder, name)).num_rows)


def _column_batches(path: Path, schema: pa.Schema) -> Iterator[list[list[Any]]]:
    try:
        file = pq.ParquetFile(path)
        for batch in file.iter_batches(batch_size=ROWS_PER_GROUP, columns=schema.names):
            yield [column.to_pylist() for column in batch.columns]
    except pa.ArrowException as error:
        problem = str(error).splitlines()[0]
        raise UserError(f"this parquet file cannot be read ({problem}); delete its folder and run the stage again.", file=path) from None


def _missing(what: str, wanted: str, present: list[str], folder: Path) -> UserError:
    listed = ", ".join(present) or "none"
    return UserError(f"this corpus has no {what}{suggest(wanted, present)}; it has: {listed}.", file=folder)


def document_path(folder: Path, language: str) -> Path:
    """Return the file of a language's documents."""
    return folder / "documents" / f"{language}.parquet"


def pair_path(folder: Path, name: str) -> Path:
    """Return the file of a pair corpus."""
    return folder / "pairs" / f"{name}.parquet"
