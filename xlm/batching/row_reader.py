"""From addresses of rows to their texts: the only place of this room that looks into shards.

Neighbours of one corpus, variant and block are a run: they share a row plan and a token shard. Where shards are many,
nearly every row is a run of its own, so nothing is computed run by run: what is looked up (the segments of rows, the
places of items, the pieces of texts) is ranges of one column a run, gathered for all of them at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from xlm.batching.gathering import gathered
from xlm.batching.packed_rows import Ids, bounds_of, joined, starts_of
from xlm.batching.texts import Pieces, RowTexts
from xlm.mixing.batch_rows import BatchRows
from xlm.mixing.leaves import Leaf
from xlm.shards.layouts import Layout
from xlm.shards.reader import ShardSet

# Blocks whose views are kept at hand. They keep two files mapped each, even such as the `ShardSet` has let go of: few enough for
# both to stay below what a process may map.
BLOCKS_KEPT = 1_500


class SourceRun(NamedTuple):
    """So many segments in a row from one block of one corpus."""

    corpus: str
    block: int
    segments: int


@dataclass(frozen=True, slots=True)
class ReadRows:
    """Rows' texts, and the blocks that they come from, in order."""

    texts: RowTexts
    sources: tuple[SourceRun, ...]


class OpenBlock(NamedTuple):
    """Views of a block's row plan and token shard: where rows begin, their segments, where items begin and pieces, by side."""

    rows: memoryview
    item: memoryview
    start: memoryview
    end: memoryview
    offsets: tuple[memoryview, ...]
    tokens: tuple[memoryview, ...]


class RowReader:
    """Reads rows of the leaves of a data plan; ``languages`` are the plan's, in the order of their ids."""

    def __init__(self, shards: ShardSet, leaves: Sequence[Leaf], languages: Sequence[str]) -> None:
        self._shards = shards
        self._corpora = [leaf.corpus for leaf in leaves]
        ids = {language: number for number, language in enumerate(languages)}
        self._languages = [tuple(ids[language] for language in leaf.languages) for leaf in leaves]
        # Views keep files mapped: of shards that lie elsewhere only their `ShardSet` decides which.
        self._opened = lru_cache(BLOCKS_KEPT if shards.store.max_mapped_bytes is None else 0)(self._open)

    def read(self, rows: BatchRows, layout: Layout) -> ReadRows:
        """Return the texts of rows of one layout (at least one row), in their order."""
        blocks, local = self._located(rows, layout)
        edges = edges_of(rows.leaf, rows.variant, blocks)
        leaves, variants, numbers = (column[edges[:-1]].tolist() for column in (rows.leaf, rows.variant, blocks))
        corpora = [self._corpora[leaf] for leaf in leaves]
        opened = [
            self._opened(corpus, layout, rows.sequence_length, variant, block)
            for corpus, variant, block in zip(corpora, variants, numbers, strict=True)
        ]
        (bounds,) = gathered(local, np.full_like(local, 2), edges, [block.rows for block in opened])
        firsts, counts = bounds[0::2], bounds[1::2] - bounds[0::2]  # of the segments of each row
        per_run = np.add.reduceat(counts, edges[:-1])
        segment_edges = bounds_of(per_run)
        of_items = list(zip(*(block.offsets for block in opened), strict=True))
        if len(of_items) == 1:
            columns = zip(*((block.item, block.start, block.end) for block in opened), strict=True)
            items, offsets, ends = (column.astype(np.int64) for column in gathered(firsts, counts, edges, *columns))
            (begins,) = gathered(items, np.ones_like(items), segment_edges, *of_items)
            begins, lengths = (begins + offsets)[None], (ends - offsets)[None]
        else:  # pairs are whole
            items = gathered(firsts, counts, edges, [block.item for block in opened])[0].astype(np.int64)
            offsets = np.zeros_like(items)
            around = np.stack(gathered(items, np.full_like(items, 2), segment_edges, *of_items))
            begins, lengths = around[:, 0::2], around[:, 1::2] - around[:, 0::2]
        pieces, starts = _pieces([block.tokens for block in opened], begins, lengths, segment_edges)
        texts = RowTexts(
            pieces,
            starts,
            lengths,
            languages=np.array([self._languages[leaf] for leaf in leaves], dtype=np.int64).T.repeat(per_run, axis=1),
            segments_per_row=counts,
            items=items,
            offsets=offsets,
        )
        return ReadRows(texts, tuple(map(SourceRun, corpora, numbers, per_run.tolist())))

    def _located(self, rows: BatchRows, layout: Layout) -> tuple[Ids, Ids]:
        """Return the block of each row, [R], and its number inside the block, [R]."""
        located = np.empty((2, len(rows)), dtype=np.int64)
        for first, stop in runs(rows.leaf, rows.variant):
            corpus, variant = self._corpora[int(rows.leaf[first])], int(rows.variant[first])
            located[:, first:stop] = self._shards.block_of(corpus, layout, rows.sequence_length, variant, rows.row[first:stop])
        return located[0], located[1]

    def _open(self, corpus: str, layout: Layout, length: int, variant: int, block: int) -> OpenBlock:
        plan, shard = self._shards.block(corpus, layout, length, variant, block), self._shards.shard(corpus, block)
        segments = plan.segments
        return OpenBlock(
            plan.offsets.data,
            segments.item.data,
            segments.start.data,
            segments.end.data,
            tuple(of_side.data for of_side in shard.offsets),
            tuple(of_side.data for of_side in shard.tokens),
        )

    def names(self, read: ReadRows) -> list[str]:
        """Return the key of every pair, or the id of every document, [S]."""
        found: list[str] = []
        for run in read.sources:
            items = read.texts.items[len(found) : len(found) + run.segments]
            column = self._shards.shard(run.corpus, run.block).batch.column(0)  # ids and keys come first
            found += column.take(pa.array(items)).to_pylist()
        return found

    def corpus_items(self, read: ReadRows) -> Ids:
        """Return the number of every segment's item in its whole corpus, [S]."""
        before = [self._shards.first_item(run.corpus, run.block) for run in read.sources]
        return read.texts.items + np.repeat(np.array(before, dtype=np.int64), [run.segments for run in read.sources])


def _pieces(tokens: Sequence[tuple[memoryview, ...]], begins: Ids, lengths: Ids, edges: Ids) -> tuple[Pieces, Ids]:
    """Return one array with the texts [sides, S] of runs of segments, and where each starts in it, [sides, S]."""
    if len(tokens) == len(begins) == 1:  # nothing to join: they are taken from the mapped file when they are laid out
        return np.asarray(tokens[0][0]), begins
    of_sides = [
        gathered(of_side, of_length, edges, columns)[0]
        for of_side, of_length, columns in zip(begins, lengths, zip(*tokens, strict=True), strict=True)
    ]
    return joined(of_sides), starts_of(lengths.ravel()).reshape(lengths.shape)


def edges_of(*columns: Ids) -> Ids:
    """Return where runs of equal neighbours in all columns [n] begin, n at least 1, and n."""
    changes = columns[0][1:] != columns[0][:-1]
    for column in columns[1:]:
        changes = changes | (column[1:] != column[:-1])
    return np.concatenate([[0], changes.nonzero()[0] + 1, [columns[0].size]])


def runs(*columns: Ids) -> list[tuple[int, int]]:
    """Return (first, stop) of the runs of equal neighbours in all columns [n], n at least 1."""
    return list(pairwise(edges_of(*columns).tolist()))
