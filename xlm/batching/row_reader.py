"""From addresses of rows to their texts: the only place of this room that looks into shards.

Rows are read run by run: neighbours of one corpus, variant and block share a row plan and a token shard, and
all their pieces are taken from the mapped file at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from xlm.batching.packed_rows import Ids, ranges, starts_of
from xlm.batching.texts import Pieces, RowTexts
from xlm.mixing.batch_rows import BatchRows
from xlm.mixing.leaves import Leaf
from xlm.shards.layouts import Layout
from xlm.shards.reader import ShardSet


@dataclass(frozen=True, slots=True)
class SourceRun:
    """So many segments in a row from one block of one corpus."""

    corpus: str
    block: int
    segments: int


@dataclass(frozen=True, slots=True)
class ReadRows:
    """Rows' texts, and the blocks that they come from, in order."""

    texts: RowTexts
    sources: tuple[SourceRun, ...]


class RowReader:
    """Reads rows of the leaves of a data plan; ``languages`` are the plan's, in the order of their ids."""

    def __init__(self, shards: ShardSet, leaves: Sequence[Leaf], languages: Sequence[str]) -> None:
        self._shards = shards
        self._corpora = [leaf.corpus for leaf in leaves]
        ids = {language: number for number, language in enumerate(languages)}
        self._languages = [tuple(ids[language] for language in leaf.languages) for leaf in leaves]

    def read(self, rows: BatchRows, layout: Layout) -> ReadRows:
        """Return the texts of rows of one layout (at least one row), in their order."""
        per_row: list[Ids] = []
        items: list[Ids] = []
        offsets: list[Ids] = []
        places: list[list[tuple[Pieces, Ids, Ids]]] = []  # by run, then by side: pieces, and starts and lengths of texts
        languages: list[tuple[int, ...]] = []
        sources: list[SourceRun] = []
        for first, stop in runs(rows.leaf, rows.variant):
            leaf, variant = int(rows.leaf[first]), int(rows.variant[first])
            corpus = self._corpora[leaf]
            blocks, local = self._shards.block_of(corpus, layout, rows.sequence_length, variant, rows.row[first:stop])
            for begin, end in runs(blocks):
                block = int(blocks[begin])
                plan = self._shards.block(corpus, layout, rows.sequence_length, variant, block)
                shard = self._shards.shard(corpus, block)
                firsts = plan.offsets[local[begin:end]]
                counts: Ids = plan.offsets[local[begin:end] + 1] - firsts
                segments = ranges(firsts, counts)
                of_run = plan.segments.item[segments].astype(np.int64)
                starts = plan.segments.start[segments].astype(np.int64)
                per_row.append(counts)
                items.append(of_run)
                offsets.append(starts)
                languages.append(self._languages[leaf])
                sources.append(SourceRun(corpus, block, of_run.size))
                if len(shard.tokens) == 1:
                    spans = [plan.segments.end[segments].astype(np.int64) - starts]
                    begins = [shard.offsets[0][of_run] + starts]
                else:  # pairs are whole
                    begins = [of_side[of_run] for of_side in shard.offsets]
                    spans = [of_side[of_run + 1] - start for of_side, start in zip(shard.offsets, begins, strict=True)]
                places.append(list(zip(shard.tokens, begins, spans, strict=True)))
        texts = RowTexts(
            *_gathered(places),
            languages=np.repeat(np.array(languages, dtype=np.int64).T, [run.segments for run in sources], axis=1),
            segments_per_row=joined(per_row),
            items=joined(items),
            offsets=joined(offsets),
        )
        return ReadRows(texts, tuple(sources))

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


def _gathered(places: Sequence[Sequence[tuple[Pieces, Ids, Ids]]]) -> tuple[Pieces, Ids, Ids]:
    """Return texts [sides, S] of several runs as pieces of one array: pieces, starts and lengths."""
    if len(places) == len(places[0]) == 1:  # nothing to join: they are taken from the mapped file when they are laid out
        pieces, starts, lengths = places[0][0]
        return pieces, starts[None], lengths[None]
    lengths = np.stack([joined([lengths for _, _, lengths in of_side]) for of_side in zip(*places, strict=True)])
    parts = [pieces.take(ranges(starts, lengths)) for of_side in zip(*places, strict=True) for pieces, starts, lengths in of_side]
    return joined(parts), starts_of(lengths.ravel()).reshape(lengths.shape), lengths


def runs(*columns: Ids) -> list[tuple[int, int]]:
    """Return (first, stop) of the runs of equal neighbours in all columns [n], n at least 1."""
    changes = columns[0][1:] != columns[0][:-1]
    for column in columns[1:]:
        changes = changes | (column[1:] != column[:-1])
    return list(pairwise([0, *(changes.nonzero()[0] + 1).tolist(), columns[0].size]))


def joined(parts: Sequence[Pieces]) -> Pieces:
    """Concatenate parts, at least one, without a copy of a single one."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
