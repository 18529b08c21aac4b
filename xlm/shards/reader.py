"""Reading shards: files are mapped, token arrays are views of them, nothing is copied or decoded.

A `ShardSet` opens files when they are first asked for and leaves them behind when it is pickled, so that
loader processes can be given one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from xlm.errors import UserError
from xlm.shards.format import (
    CHECKSUM_KEY,
    FORMAT_VERSION,
    KIND_KEY,
    NAME_COLUMN,
    STARTS_COLUMN,
    TOKEN_COLUMNS,
    VERSION_KEY,
    VOCABULARY_KEY,
    Kind,
    content_checksum,
    map_arrow,
)
from xlm.shards.index import ShardIndex
from xlm.shards.row_plan import RowPlan

Tokens = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]


class Segment(NamedTuple):
    """A piece of an item in a row: tokens ``start`` to ``end`` of it; pairs are whole (end = both lengths)."""

    item: int
    start: int
    end: int


@dataclass(frozen=True)
class TokenShard:
    """One mapped shard: side s of item i is ``tokens[s][offsets[s][i]:offsets[s][i + 1]]``."""

    path: Path
    batch: pa.RecordBatch
    tokens: tuple[Tokens, ...]  # one flat array a side
    offsets: tuple[npt.NDArray[np.int64], ...]  # [items + 1] a side

    @classmethod
    def open(cls, path: Path, kind: Kind, vocabulary_fingerprint: str) -> TokenShard:
        """Map a shard; raises UserError for another format, kind or vocabulary."""
        batch = map_arrow(path)
        metadata = batch.schema.metadata or {}
        version = metadata.get(VERSION_KEY, b"").decode()
        if version != str(FORMAT_VERSION) or metadata.get(KIND_KEY, b"").decode() != kind:
            raise UserError(
                f"a {kind} shard of format {FORMAT_VERSION} is expected; this is '{metadata.get(KIND_KEY, b'').decode()}' "
                f"of format '{version}'; build the shards again.",
                file=path,
            )
        check_vocabulary(metadata.get(VOCABULARY_KEY, b"").decode(), vocabulary_fingerprint, path)
        columns = [batch.column(name) for name in TOKEN_COLUMNS[kind]]
        return cls(
            path,
            batch,
            tuple(column.values.to_numpy(zero_copy_only=True) for column in columns),
            tuple(column.offsets.to_numpy(zero_copy_only=True) for column in columns),
        )

    @property
    def items(self) -> int:
        """Number of documents or pairs."""
        return int(self.batch.num_rows)

    def side(self, side: int, item: int) -> Tokens:
        """Return one side of an item as a view, [tokens]."""
        offsets = self.offsets[side]
        return self.tokens[side][offsets[item] : offsets[item + 1]]

    def sentence_starts(self) -> dict[int, list[int]]:
        """Return the token offsets at which sentences begin, for the documents of the shard where they are known."""
        column = self.batch.column(STARTS_COLUMN)
        known = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)).tolist()
        return {item: column[item].as_py() for item in known}

    def verify(self) -> None:
        """Raise UserError when the content does not have the checksum it was written with."""
        if content_checksum(self.batch) != (self.batch.schema.metadata or {}).get(CHECKSUM_KEY, b"").decode():
            raise UserError(
                "the checksum of this shard does not match its content; delete its shards folder and build it again.", file=self.path
            )


def check_vocabulary(found: str, expected: str, file: Path) -> None:
    """Raise UserError, naming both fingerprints, when shards were built with another vocabulary."""
    if found != expected:
        raise UserError(
            f"these shards were built with vocabulary {found}, but the vocabulary in use is {expected}; "
            "build the shards again with pipelines/build_shards.py, or use the vocabulary they were built with.",
            file=file,
        )


class ShardSet:
    """All shards and row plans of a folder, opened for one vocabulary."""

    def __init__(self, folder: Path, vocabulary_fingerprint: str) -> None:
        """Read the index; raises UserError for shards of another vocabulary."""
        self.folder = folder
        self.index = ShardIndex.load(folder)
        check_vocabulary(self.index.vocabulary_fingerprint, vocabulary_fingerprint, folder)
        self._vocabulary_fingerprint = vocabulary_fingerprint
        # First item of each shard of a corpus, and the total.
        self._first_items = {name: [0, *accumulate(file.items for file in entry.files)] for name, entry in self.index.corpora.items()}
        self._close()

    def _close(self) -> None:
        self._shards: dict[tuple[str, int], TokenShard] = {}
        self._plans: dict[tuple[str, str, int, int], RowPlan] = {}

    def row(self, corpus: str, objective: str, length: int, variant: int, row: int) -> list[Segment]:
        """Return the segments of one row of a plan."""
        plan = self.plan(corpus, objective, length, variant)
        if not 0 <= row < plan.rows:
            raise IndexError(f"row {row} of '{corpus}': the plan has {plan.rows} rows")
        first, last = plan.offsets[row], plan.offsets[row + 1]
        segments = plan.segments
        columns = (segments.item[first:last].tolist(), segments.start[first:last].tolist(), segments.end[first:last].tolist())
        return [Segment(*values) for values in zip(*columns, strict=True)]

    def plan(self, corpus: str, objective: str, length: int, variant: int) -> RowPlan:
        """Return a whole row plan; raises UserError where it was not built."""
        key = (corpus, objective, length, variant)
        if key not in self._plans:
            self._plans[key] = RowPlan.read(self.folder / self.index.plan(*key).file)
        return self._plans[key]

    def document_tokens(self, corpus: str, item: int) -> Tokens:
        """Return the ids of a document as a view of the file, [tokens], no special pieces."""
        shard, local = self._locate(corpus, item)
        return shard.side(0, local)

    def pair_tokens(self, corpus: str, item: int) -> tuple[Tokens, Tokens]:
        """Return the ids of both sides of a pair as views, [source tokens] and [target tokens]."""
        shard, local = self._locate(corpus, item)
        return shard.side(0, local), shard.side(1, local)

    def pair_key(self, corpus: str, item: int) -> str:
        """Return the key that a pair shares with the other translations of its source."""
        return self._name(corpus, item)

    def document_id(self, corpus: str, item: int) -> str:
        """Return the id of a document."""
        return self._name(corpus, item)

    def shards(self, corpus: str) -> Iterator[TokenShard]:
        """Yield a corpus's shards in item order, for work on whole flat arrays."""
        for number in range(len(self.index.corpus(corpus).files)):
            yield self._shard(corpus, number)

    def verify(self) -> None:
        """Read every shard and check its checksum; raises UserError naming the first that is damaged."""
        for corpus in self.index.corpora:
            for shard in self.shards(corpus):
                shard.verify()

    def _name(self, corpus: str, item: int) -> str:
        shard, local = self._locate(corpus, item)
        name: str = shard.batch.column(NAME_COLUMN[self.index.corpus(corpus).kind])[local].as_py()
        return name

    def _locate(self, corpus: str, item: int) -> tuple[TokenShard, int]:
        firsts = self._first_items[self.index.corpus(corpus).name]
        if not 0 <= item < firsts[-1]:
            raise IndexError(f"item {item} of '{corpus}': there are {firsts[-1]} items")
        number = bisect_right(firsts, item) - 1
        return self._shard(corpus, number), item - firsts[number]

    def _shard(self, corpus: str, number: int) -> TokenShard:
        key = (corpus, number)
        if key not in self._shards:
            entry = self.index.corpus(corpus)
            file = entry.files[number]
            shard = TokenShard.open(self.folder / file.path, entry.kind, self._vocabulary_fingerprint)
            if shard.items != file.items:
                raise UserError(
                    f"{shard.items} items found, the index says {file.items}; delete this shards folder and build it again.",
                    file=shard.path,
                )
            self._shards[key] = shard
        return self._shards[key]

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "vocabulary_fingerprint": self._vocabulary_fingerprint}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]
