"""Writing a token shard: items are gathered in flat buffers, and the file is written when all are there.

The checksum stands in the schema, which an Arrow file begins with, so a shard is complete in memory
before its first byte is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from xlm.shards.format import (
    NAME_COLUMN,
    STARTS_COLUMN,
    TOKEN_COLUMNS,
    Kind,
    content_checksum,
    largest_id,
    shard_metadata,
    shard_schema,
    write_arrow,
)
from xlm.shards.index import CorpusEntry, ShardFile


class ShardWriter:
    """Gathers the items of one shard; call `add` for each, then `write`."""

    def __init__(
        self, name: str, kind: Kind, languages: tuple[str, ...], *, vocabulary_fingerprint: str, token_dtype: np.dtype[Any]
    ) -> None:
        self._name, self._kind, self._languages = name, kind, languages
        self._fingerprint, self._dtype = vocabulary_fingerprint, token_dtype
        self._names: list[str] = []
        self._sides: list[list[npt.NDArray[Any]]] = [[] for _ in TOKEN_COLUMNS[kind]]
        self._starts: list[Sequence[int] | None] = []

    def add(self, name: str, *sides: npt.NDArray[Any], sentence_starts: Sequence[int] | None = None) -> None:
        """Add a document (one array of ids) or a pair (source ids, target ids), each [tokens], none empty."""
        self._names.append(name)
        for column, ids in zip(self._sides, sides, strict=True):
            column.append(ids)
        self._starts.append(sentence_starts)

    def write(self, folder: Path, number: int) -> ShardFile:
        """Write ``tokens/<corpus>-<number>.arrow`` below ``folder`` and return its entry in the index."""
        path = f"tokens/{self._name}-{number:05d}.arrow"
        arrays = {NAME_COLUMN[self._kind]: pa.array(self._names, pa.string())}
        arrays.update(zip(TOKEN_COLUMNS[self._kind], map(self._column, self._sides), strict=True))
        if self._kind == "monolingual":
            arrays[STARTS_COLUMN] = pa.array(self._starts, pa.large_list(pa.uint32()))
        schema = shard_schema(self._kind, self._dtype)
        batch = pa.record_batch([arrays[name] for name in schema.names], schema=schema)
        largest = max(largest_id(arrays[column].values.to_numpy()) for column in TOKEN_COLUMNS[self._kind])
        metadata = shard_metadata(self._kind, self._languages, self._fingerprint, content_checksum(batch), largest)
        facts = write_arrow(folder / path, batch.replace_schema_metadata(metadata))
        return ShardFile(
            path=path,
            items=len(self._names),
            tokens=sum(len(arrays[column].values) for column in TOKEN_COLUMNS[self._kind]),
            # Where sentences are not known, a text counts as one; a text always has one.
            sentences=sum(max(1, len(starts)) if starts is not None else 1 for starts in self._starts),
            size_bytes=facts.size_bytes,
            sha256=facts.sha256,
        )

    def _column(self, sides: list[npt.NDArray[Any]]) -> pa.LargeListArray:
        lengths = np.fromiter(map(len, sides), dtype=np.int64, count=len(sides))
        values = np.concatenate(sides) if sides else np.empty(0)
        return pa.LargeListArray.from_arrays(offsets_of(lengths), pa.array(values.astype(self._dtype, copy=False)))


def offsets_of(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the offsets [n + 1] of items with these lengths [n] in a flat buffer."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def corpus_entry(
    name: str, kind: Kind, languages: tuple[str, ...], files: Iterable[ShardFile], dropped: Mapping[str, int] | None = None
) -> CorpusEntry:
    """Join the shards of a corpus, in order, to its entry in the index."""
    files = tuple(files)
    return CorpusEntry(
        name=name,
        kind=kind,
        languages=languages,
        items=sum(file.items for file in files),
        tokens=sum(file.tokens for file in files),
        sentences=sum(file.sentences for file in files),
        files=files,
        dropped=dict(dropped or {}),
    )
