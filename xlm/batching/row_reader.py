"""From addresses of rows to where their texts lie in the mapped shards; no token is touched yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from xlm.batching.packed_rows import Ids, ranges
from xlm.batching.texts import Stretch, Texts
from xlm.mixing.data_plan import RowRef
from xlm.shards.reader import ShardSet, TokenShard


@dataclass(frozen=True, slots=True)
class RowTexts:
    """The texts of rows of one objective: one side (documents) or two (pairs), [S] texts each."""

    refs: Sequence[RowRef]  # [R], in the order in which the rows are laid out: by corpus
    segments_per_row: Ids  # [R]
    corpora: Sequence[str]  # [C], and how many segments each has, in order
    segments_per_corpus: Ids  # [C]
    items: Ids  # [S], number of the document or pair in its corpus
    offsets: Ids  # [S], first token of the segment in its item
    sides: Sequence[Texts]


class RowReader:
    """Finds rows in one shards folder."""

    def __init__(self, shards: ShardSet) -> None:
        self._shards = shards
        self._opened: dict[str, tuple[list[TokenShard], Ids]] = {}

    def read(self, refs: Sequence[RowRef]) -> RowTexts:
        """Return the texts of rows of one objective (at least one row), grouped by row plan, otherwise in order."""
        groups: dict[tuple[str, int, int], list[RowRef]] = {}
        for ref in sorted(refs, key=lambda ref: (ref.corpus, ref.variant)):
            groups.setdefault((ref.corpus, ref.sequence_length, ref.variant), []).append(ref)
        per_row: list[Ids] = []
        items: list[Ids] = []
        offsets: list[Ids] = []
        sides: list[tuple[Texts, ...]] = []
        for (corpus, length, variant), of_group in groups.items():
            plan = self._shards.plan(corpus, of_group[0].objective, length, variant)
            rows = np.array([ref.row for ref in of_group], dtype=np.int64)
            firsts = plan.offsets[rows]
            counts: Ids = plan.offsets[rows + 1] - firsts
            segments = ranges(firsts, counts)
            group_items = plan.segments.item[segments].astype(np.int64)
            starts = plan.segments.start[segments].astype(np.int64)
            per_row.append(counts)
            items.append(group_items)
            offsets.append(starts)
            sides.append(self._texts(corpus, group_items, starts, plan.segments.end[segments].astype(np.int64)))
        return RowTexts(
            refs=[ref for of_group in groups.values() for ref in of_group],
            segments_per_row=np.concatenate(per_row),
            corpora=[corpus for corpus, _, _ in groups],
            segments_per_corpus=np.array([of_group.size for of_group in items], dtype=np.int64),
            items=np.concatenate(items),
            offsets=np.concatenate(offsets),
            sides=[Texts.joined(of_side) for of_side in zip(*sides, strict=True)],
        )

    def names(self, texts: RowTexts) -> list[str]:
        """Return the key of every pair, or the id of every document, [S]."""
        found: list[str] = []
        ends = np.cumsum(texts.segments_per_corpus)
        for corpus, items in zip(texts.corpora, np.split(texts.items, ends[:-1]), strict=True):
            of_corpus = np.empty(items.size, dtype=object)
            for shard, which, local in self._by_shard(corpus, items):
                of_corpus[which] = shard.batch.column(0).take(pa.array(local)).to_pylist()  # ids and keys come first
            found += of_corpus.tolist()
        return found

    def pairs_in(self, ref: RowRef) -> int:
        """Return how many pairs a contrastive row holds, from its row plan alone."""
        offsets = self._shards.plan(ref.corpus, ref.objective, ref.sequence_length, ref.variant).offsets
        return int(offsets[ref.row + 1] - offsets[ref.row])

    def _texts(self, corpus: str, items: Ids, starts: Ids, ends: Ids) -> tuple[Texts, ...]:
        """Locate tokens ``starts`` to ``ends`` of documents, or both sides of whole pairs."""
        sides = len(self._shards.index.corpus(corpus).languages)
        stretches: list[list[Stretch]] = [[] for _ in range(sides)]
        lengths = np.empty((sides, items.size), dtype=np.int64)
        for shard, which, local in self._by_shard(corpus, items):
            for side, (pieces, offsets) in enumerate(zip(shard.tokens, shard.offsets, strict=True)):
                begins: Ids = offsets[local]
                if sides == 1:
                    lengths[side, which] = ends[which] - starts[which]
                    begins = begins + starts[which]
                else:
                    lengths[side, which] = offsets[local + 1] - begins
                stretches[side].append(Stretch(which, pieces, begins))
        return tuple(Texts(of_side, found) for of_side, found in zip(lengths, stretches, strict=True))

    def _by_shard(self, corpus: str, items: Ids) -> Iterator[tuple[TokenShard, Ids, Ids]]:
        """Yield each shard that holds some of the items, which of them [m], and their numbers inside it [m]."""
        if corpus not in self._opened:
            opened = list(self._shards.shards(corpus))
            self._opened[corpus] = opened, np.cumsum([0, *(shard.items for shard in opened)])[:-1]
        shards, first_items = self._opened[corpus]
        number = np.searchsorted(first_items, items, side="right") - 1
        for shard_number in sorted(set(number.tolist())):
            which = np.flatnonzero(number == shard_number)
            yield shards[shard_number], which, items[which] - first_items[shard_number]
