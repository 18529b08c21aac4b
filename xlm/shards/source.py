"""A corpus before it is tokenised: one parquet file, of which any stretch of items can be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from xlm.corpora.documents import split_pair_name
from xlm.corpora.store import document_languages, document_path, pair_names, pair_path
from xlm.errors import UserError
from xlm.shards.format import NAME_COLUMN, STARTS_COLUMN, Kind

# Rows that are decoded at a time: small, because a row may be a book.
BATCH_ITEMS = 2048
TEXT_COLUMNS: dict[Kind, tuple[str, ...]] = {"monolingual": ("text",), "pair": ("source", "target")}


@dataclass(frozen=True)
class Source:
    """A corpus of the shards and the parquet file (docs/formats.md) that its text is read from.

    ``turns`` is a file that says which items a variant takes (`xlm.shards.turns`); None: every variant takes all.
    """

    name: str
    kind: Kind
    languages: tuple[str, ...]
    path: Path
    turns: Path | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """What makes an item: name, then texts, then for documents the sentence starts."""
        starts = (STARTS_COLUMN,) if self.kind == "monolingual" else ()
        return (NAME_COLUMN[self.kind], *TEXT_COLUMNS[self.kind], *starts)

    def items(self) -> int:
        """Return how many items there are, from the file's footer alone."""
        with self._open() as file:
            return int(file.metadata.num_rows)

    def read(self, first: int, items: int, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Yield ``items`` items from number ``first`` on, in order; only the row groups that hold them are read."""
        last = first + items
        with self._open() as file:
            begins = [0, *accumulate(file.metadata.row_group(group).num_rows for group in range(file.num_row_groups))]
            groups = [group for group in range(file.num_row_groups) if begins[group] < last and begins[group + 1] > first]
            if not groups:
                return
            position = begins[groups[0]]
            try:
                for batch in file.iter_batches(batch_size=BATCH_ITEMS, row_groups=groups, columns=list(columns)):
                    begin, end = max(first - position, 0), min(last - position, batch.num_rows)
                    position += batch.num_rows
                    if begin < end:
                        # By name: parquet yields columns in the order of the file.
                        yield batch.slice(begin, end - begin).select(list(columns))
            except (pa.ArrowException, OSError) as error:
                raise _unreadable(self.path, error) from None

    def text_bytes(self) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the bytes of text of each item, all its sides together, batch by batch."""
        for batch in self.read(0, self.items(), TEXT_COLUMNS[self.kind]):
            yield sum(
                (pc.binary_length(column).to_numpy(zero_copy_only=False).astype(np.int64) for column in batch.columns),
                start=np.zeros(batch.num_rows, dtype=np.int64),
            )

    def _open(self) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(self.path)
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(self.path, error) from None


def corpus_sources(corpus_folder: Path) -> list[Source]:
    """Return the corpora of a corpus folder: documents by language, then pairs by name."""
    documents = [
        Source(language, "monolingual", (language,), document_path(corpus_folder, language))
        for language in document_languages(corpus_folder)
    ]
    return documents + [Source(name, "pair", split_pair_name(name), pair_path(corpus_folder, name)) for name in pair_names(corpus_folder)]


def _unreadable(path: Path, error: Exception) -> UserError:
    problem = str(error).splitlines()[0]
    return UserError(f"this parquet file cannot be read ({problem}); delete its folder and run the stage again.", file=path)
