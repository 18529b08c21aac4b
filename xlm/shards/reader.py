"""Reading shards: files are mapped, token arrays are views of them, nothing is copied or decoded.

A `ShardSet` opens each file when it is first asked for, lets go of those not used for long, and leaves them
behind when it is pickled, so that loader processes can be given one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from xlm.errors import UserError
from xlm.runs.progress import Progress
from xlm.shards.format import (
    FORMAT_VERSION,
    KIND_KEY,
    LARGEST_ID_KEY,
    STARTS_COLUMN,
    TOKEN_COLUMNS,
    VERSION_KEY,
    VOCABULARY_KEY,
    FileFacts,
    Kind,
    largest_id,
    map_arrow,
)
from xlm.shards.index import PlanKey, ShardIndex
from xlm.shards.layouts import Layout
from xlm.shards.mapped_files import MappedFiles
from xlm.shards.row_plan import RowPlan
from xlm.storage.store import LocalStore, ShardStore

# Token shards and blocks of row plans that stay mapped: as many as leave a process, which may map 65,530, room for its
# libraries and its heap. Without a shuffle window rows come from everywhere, and opening a file costs more than all else that is
# done for a row.
MAX_MAPPED_FILES = 60_000

Tokens = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]


@dataclass(frozen=True)
class TokenShard:
    """One mapped shard: side s of item i is ``tokens[s][offsets[s][i]:offsets[s][i + 1]]``."""

    path: Path
    batch: pa.RecordBatch
    tokens: tuple[Tokens, ...]  # one flat array a side
    offsets: tuple[npt.NDArray[np.int64], ...]  # [items + 1] a side

    @classmethod
    def open(cls, path: Path, kind: Kind, vocabulary_fingerprint: str, vocabulary_size: int | None = None) -> TokenShard:
        """Map a shard; raises UserError for another format, kind or vocabulary, and for ids that a vocabulary of this size lacks."""
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
        tokens = tuple(column.values.to_numpy(zero_copy_only=True) for column in columns)
        if vocabulary_size is not None:
            _check_ids(metadata.get(LARGEST_ID_KEY), tokens, vocabulary_size, path)
        return cls(path, batch, tokens, tuple(column.offsets.to_numpy(zero_copy_only=True) for column in columns))

    @property
    def items(self) -> int:
        """Number of documents or pairs."""
        return int(self.batch.num_rows)

    def side(self, side: int, item: int) -> Tokens:
        """Return one side of an item as a view, [tokens]."""
        offsets = self.offsets[side]
        return self.tokens[side][offsets[item] : offsets[item + 1]]

    def sentence_starts(self) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """Return which documents have known sentences [items], and where all of these begin in the flat tokens, ascending."""
        column = self.batch.column(STARTS_COLUMN)
        known = column.is_valid().to_numpy(zero_copy_only=False)
        counts = np.where(known, np.diff(column.offsets.to_numpy()), 0)
        # `flatten` leaves out what nulls might hide; `values` would not.
        starts = column.flatten().to_numpy().astype(np.int64)
        return known, starts + np.repeat(self.offsets[0][:-1], counts)


def check_vocabulary(found: str, expected: str, file: Path | str) -> None:
    """Raise UserError, naming both fingerprints, when shards were built with another vocabulary."""
    if found != expected:
        raise UserError(
            f"these shards were built with vocabulary {found}, but the vocabulary in use is {expected}; "
            "build the shards again with pipelines/build_shards.py, or use the vocabulary they were built with.",
            file=file,
        )


class ShardSet:
    """All shards and row plans of a folder, opened for one vocabulary.

    Keeps at most `MAX_MAPPED_FILES` files mapped, of shards that lie elsewhere of together ``store.max_mapped_bytes``, for a
    mapped file holds its room on the disk even after the cache has let go of it. The file opened last always stays.
    """

    def __init__(self, source: Path | ShardStore, vocabulary_fingerprint: str, vocabulary_size: int | None = None) -> None:
        """Read the index; raises UserError for shards of another vocabulary.

        With the size of the vocabulary, ids outside it are found when a shard is opened; who looks no id up needs none.
        """
        self.store: ShardStore = LocalStore(source) if isinstance(source, Path) else source
        self.index = ShardIndex.read(self.store)
        check_vocabulary(self.index.vocabulary_fingerprint, vocabulary_fingerprint, self.store.location)
        self._vocabulary_fingerprint, self._vocabulary_size = vocabulary_fingerprint, vocabulary_size
        self._first_items: dict[str, npt.NDArray[np.int64]] = {}
        self._first_rows: dict[PlanKey, npt.NDArray[np.int64]] = {}
        self._mapped = MappedFiles(MAX_MAPPED_FILES, self.store.max_mapped_bytes)

    # Row plans

    def block_of(
        self, corpus: str, layout: Layout, length: int, variant: int, rows: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the block of each row of a plan, [R], and its number inside the block, [R]."""
        firsts = self._rows_before((corpus, layout, length, variant))
        blocks = np.searchsorted(firsts, rows, side="right") - 1
        return blocks, rows - firsts[blocks]

    def block(self, corpus: str, layout: Layout, length: int, variant: int, block: int) -> RowPlan:
        """Return the rows that a plan makes from shard ``block`` of a corpus; items count inside that shard."""
        key = ((corpus, layout, length, variant), block)
        found = self._mapped.get(RowPlan, key)
        if found is None:
            file = self.index.plan(*key[0]).files[block]
            path = self.store.local(file.path, file.sha256, file.size_bytes)
            found = RowPlan.read(path)
            _check_count(found.rows, file.rows, "rows", path)
            self._mapped.put(key, found, file.size_bytes)
        return found

    # Token shards

    def first_item(self, corpus: str, shard: int) -> int:
        """Return the number of items of a corpus before one of its shards."""
        return int(self._items_before(corpus)[shard])

    def shard(self, corpus: str, number: int) -> TokenShard:
        """Return one mapped shard of a corpus."""
        key = (corpus, number)
        found = self._mapped.get(TokenShard, key)
        if found is None:
            entry = self.index.corpus(corpus)
            file = entry.files[number]
            path = self.store.local(file.path, file.sha256, file.size_bytes)
            found = TokenShard.open(path, entry.kind, self._vocabulary_fingerprint, self._vocabulary_size)
            _check_count(found.items, file.items, "items", path)
            self._mapped.put(key, found, file.size_bytes)
        return found

    def shards(self, corpus: str) -> Iterator[TokenShard]:
        """Yield a corpus's shards in item order, for work on whole flat arrays."""
        for number in range(len(self.index.corpus(corpus).files)):
            yield self.shard(corpus, number)

    def piece_counts(self) -> npt.NDArray[np.uint64] | None:
        """Return how often each piece occurs over all corpora, [vocabulary]; None where that was not counted."""
        file = self.index.piece_counts
        if file is None:
            return None
        counts: npt.NDArray[np.uint64] = np.load(self.store.local(file.path, file.sha256, file.size_bytes))
        return counts

    def verify(self) -> None:
        """Read every file that the index names and check its checksum; raises UserError naming the first that is damaged."""
        files = tuple(self.index.files())
        with Progress("checksums", total=len(files), unit="files") as progress:
            for file in files:
                path = self.store.local(file.path, file.sha256, file.size_bytes)
                try:
                    found = FileFacts.of(path)
                except OSError as error:
                    raise UserError(
                        f"this file cannot be read ({error.strerror or error}); delete its shards folder and build it again.", file=path
                    ) from None
                if found != FileFacts(file.size_bytes, file.sha256):
                    raise UserError(
                        "the checksum of this file is not the one in the index; delete its shards folder and build it again.", file=path
                    )
                progress.advance(note=file.path)

    def _items_before(self, corpus: str) -> npt.NDArray[np.int64]:
        """Return the items before each shard, and of all."""
        if corpus not in self._first_items:
            self._first_items[corpus] = _before([file.items for file in self.index.corpus(corpus).files])
        return self._first_items[corpus]

    def _rows_before(self, key: PlanKey) -> npt.NDArray[np.int64]:
        """Return the rows before each block, and of all."""
        if key not in self._first_rows:
            self._first_rows[key] = _before(self.index.plan(*key).block_rows)
        return self._first_rows[key]

    def __getstate__(self) -> dict[str, Any]:
        return {
            "source": self.store,
            "vocabulary_fingerprint": self._vocabulary_fingerprint,
            "vocabulary_size": self._vocabulary_size,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def _before(counts: Sequence[int]) -> npt.NDArray[np.int64]:
    return np.array([0, *accumulate(counts)], dtype=np.int64)


def _check_count(found: int, expected: int, what: str, path: Path) -> None:
    """Raise UserError where a file was exchanged for another."""
    if found != expected:
        raise UserError(f"{found} {what} found, the index says {expected}; delete this shards folder and build it again.", file=path)


def _check_ids(noted: bytes | None, tokens: Sequence[Tokens], vocabulary_size: int, path: Path) -> None:
    """Raise UserError for an id outside the vocabulary: once a shard, so that no step has to look.

    The writer has noted the largest id, so a shard is not read for this; one that does not say is.
    """
    largest = int(noted) if noted is not None else max(map(largest_id, tokens))
    if largest >= vocabulary_size:
        raise UserError(
            f"this shard holds piece id {largest}, but the vocabulary has {vocabulary_size} pieces, 0 to {vocabulary_size - 1}; "
            "delete its shards folder and build it again with pipelines/build_shards.py.",
            file=path,
        )
