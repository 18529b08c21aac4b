"""Writing token shards: items are gathered in flat buffers and a file is written whenever one is full.

The checksum stands in the schema, which an Arrow file begins with, so a shard is complete in memory
before its first byte is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from xlm.shards.format import NAME_COLUMN, STARTS_COLUMN, TOKEN_COLUMNS, Kind, content_checksum, shard_metadata, shard_schema, write_arrow
from xlm.shards.index import CorpusEntry, ShardFile

# A shard in memory stays below a quarter of a gigabyte, however long its documents are.
MAX_TOKENS_PER_SHARD = 64_000_000


@dataclass
class _Column:
    """Token arrays of one column of the shard being filled."""

    parts: list[npt.NDArray[Any]]

    def to_arrow(self, token_dtype: np.dtype[Any]) -> pa.LargeListArray:
        lengths = np.fromiter((len(part) for part in self.parts), dtype=np.int64, count=len(self.parts))
        values = np.concatenate(self.parts) if self.parts else np.empty(0)
        return pa.LargeListArray.from_arrays(offsets_of(lengths), pa.array(values.astype(token_dtype, copy=False)))


def offsets_of(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the offsets [n + 1] of items with these lengths [n] in a flat buffer."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


class ShardWriter:
    """Writes the shards of one corpus; call `add` for each item, then `close` for the corpus's entry."""

    def __init__(
        self,
        folder: Path,
        name: str,
        kind: Kind,
        languages: tuple[str, ...],
        *,
        vocabulary_fingerprint: str,
        token_dtype: np.dtype[Any],
        items_per_shard: int,
        tokens_per_shard: int = MAX_TOKENS_PER_SHARD,
    ) -> None:
        self._folder, self._name, self._kind, self._languages = folder, name, kind, languages
        self._fingerprint, self._dtype = vocabulary_fingerprint, token_dtype
        self._items_per_shard, self._tokens_per_shard = items_per_shard, tokens_per_shard
        self._files: list[ShardFile] = []
        self._start_shard()

    def _start_shard(self) -> None:
        self._names: list[str] = []
        self._columns = {column: _Column([]) for column in TOKEN_COLUMNS[self._kind]}
        self._starts: list[Sequence[int] | None] = []
        self._tokens = 0

    def add(self, name: str, *sides: npt.NDArray[Any], sentence_starts: Sequence[int] | None = None) -> None:
        """Add a document (one array of ids) or a pair (source ids, target ids), each [tokens], none empty."""
        self._names.append(name)
        for column, ids in zip(self._columns.values(), sides, strict=True):
            column.parts.append(ids)
            self._tokens += len(ids)
        self._starts.append(sentence_starts)
        if len(self._names) >= self._items_per_shard or self._tokens >= self._tokens_per_shard:
            self._flush()

    def close(self) -> CorpusEntry:
        """Write what is left and return the corpus's entry in the index."""
        if self._names:
            self._flush()
        return CorpusEntry(
            name=self._name,
            kind=self._kind,
            languages=self._languages,
            items=sum(file.items for file in self._files),
            tokens=sum(file.tokens for file in self._files),
            files=tuple(self._files),
        )

    def _flush(self) -> None:
        path = f"tokens/{self._name}-{len(self._files):05d}.arrow"
        arrays = {NAME_COLUMN[self._kind]: pa.array(self._names, pa.string())}
        arrays.update({column: parts.to_arrow(self._dtype) for column, parts in self._columns.items()})
        if self._kind == "monolingual":
            arrays[STARTS_COLUMN] = pa.array(self._starts, pa.large_list(pa.uint32()))
        schema = shard_schema(self._kind, self._dtype)
        batch = pa.record_batch([arrays[name] for name in schema.names], schema=schema)
        metadata = shard_metadata(self._kind, self._languages, self._fingerprint, content_checksum(batch))
        (self._folder / path).parent.mkdir(parents=True, exist_ok=True)
        write_arrow(self._folder / path, batch.replace_schema_metadata(metadata))
        self._files.append(ShardFile(path, len(self._names), self._tokens))
        self._start_shard()
