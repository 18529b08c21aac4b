"""From the rows of a data plan to batches: reads their texts, has them laid out for their objective, joins them.

What a row holds and how it is masked depends on (seed, corpus, objective, layout, length, epoch, row) alone.
Several small micro-batches are built in one go, because numpy's cost is in its calls, and cut apart at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from xlm.batching.arrangement import Arrangement
from xlm.batching.collate import RowsOfBatch, collate
from xlm.batching.contrastive import pair_keys
from xlm.batching.keyed_words import Words, row_seeds
from xlm.batching.objective_rows import RowMaker
from xlm.batching.packed_batch import PackedBatch, Provenance, SegmentSource
from xlm.batching.packed_rows import PieceIds
from xlm.batching.row_reader import ReadRows, RowReader, runs
from xlm.batching.words import has_spaces
from xlm.config.recipe import Recipe
from xlm.mixing.batch_rows import BatchRows, Column
from xlm.mixing.leaves import Leaf
from xlm.seeding import key_int64
from xlm.shards.layouts import Layout
from xlm.shards.reader import ShardSet

# Positions built in one go: few enough to stay in a core's cache, enough to make numpy's calls cheap.
POSITIONS_AT_ONCE = 1 << 15
# Numbers that rows' seeds are drawn from, one for each epoch of a leaf: more than leaves are drawn at a time, few enough for any run.
BASES_KEPT = 1 << 14


class PlannedRows(Protocol):
    """What is asked of a plan of rows: a `DataPlan`'s, or those set aside for validation."""

    leaves: tuple[Leaf, ...]
    languages: tuple[str, ...]
    recipe: Recipe

    def layout(self, phase: int, leaf: int) -> Layout:
        """Return the layout of the row plan that a phase's rows of a leaf come from."""


class RowBuilder:
    """Builds the rows of one plan over its shards."""

    def __init__(self, plan: PlannedRows, shards: ShardSet, pieces: PieceIds, seed: int) -> None:
        self._plan = plan
        self._pieces = pieces
        self._seed = seed
        self._reader = RowReader(shards, plan.leaves, plan.languages)
        self._piece_counts = shards.piece_counts()
        self._spaced: NDArray[np.bool_] = np.array([has_spaces(language) for language in plan.languages], dtype=np.bool_)
        self._makers: dict[int, RowMaker] = {}
        objectives = sorted({leaf.objective for leaf in plan.leaves})
        self._objective_of_leaf = np.array([objectives.index(leaf.objective) for leaf in plan.leaves], dtype=np.int64)
        self._base = lru_cache(BASES_KEPT)(self._drawn_base)

    def build(self, rows: BatchRows, sizes: Sequence[int], *, with_provenance: bool = False) -> list[PackedBatch]:
        """Return micro-batches: the first ``sizes[0]`` rows, the next ``sizes[1]`` and so on; of 0 rows the empty batch.

        Inside a micro-batch the rows of a leaf are brought together.
        """
        rows = rows.take(self._order(rows, sizes))
        return [batch for part, of_part in _parts(rows, sizes) for batch in collate(list(self._objectives(part, with_provenance)), of_part)]

    def _order(self, rows: BatchRows, sizes: Sequence[int]) -> Column:
        """Sort stably by micro-batch, leaf and variant."""
        micro = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
        most = 1 + int(rows.variant.max(initial=0))
        return np.argsort((micro * len(self._plan.leaves) + rows.leaf) * most + rows.variant, kind="stable")

    def _objectives(self, rows: BatchRows, with_provenance: bool) -> Iterator[RowsOfBatch]:
        """Yield runs of rows of one objective."""
        if not len(rows):
            return
        phase = self._plan.recipe.phases[rows.phase]
        maker = self._maker(rows.phase)
        for first, stop in runs(self._objective_of_leaf[rows.leaf]):
            of_run = rows.take(np.arange(first, stop))
            leaf = int(of_run.leaf[0])
            objective = self._plan.leaves[leaf].objective
            read = self._reader.read(of_run, self._plan.layout(rows.phase, leaf))
            seeds = self._seeds(of_run)
            arrangement = maker.arrange(objective, phase.objectives[objective], read.texts, seeds)
            keys = pair_keys(self._reader.names(read), arrangement) if objective == "contrastive" else None
            made = maker.make(objective, arrangement, read.texts, seeds, rows.mask_rate, keys)
            yield RowsOfBatch(made, of_run.number, self._provenance(read, arrangement) if with_provenance else ())

    def _maker(self, phase: int) -> RowMaker:
        if phase not in self._makers:
            masking = self._plan.recipe.phases[phase].masking
            self._makers[phase] = RowMaker(self._pieces, masking, self._spaced, self._piece_counts)
        return self._makers[phase]

    def _seeds(self, rows: BatchRows) -> Words:
        edges = runs(rows.leaf, rows.epoch)
        bases = np.array([self._base(rows.phase, int(rows.leaf[first]), int(rows.epoch[first])) for first, _ in edges], dtype=np.uint64)
        return row_seeds(np.repeat(bases, [stop - first for first, stop in edges]), rows.row)

    def _drawn_base(self, phase: int, leaf: int, epoch: int) -> int:
        """Return the number that the seeds of a leaf's rows in an epoch are drawn from."""
        of_leaf, length = self._plan.leaves[leaf], self._plan.recipe.phases[phase].sequence_length
        return key_int64("row", self._seed, of_leaf.corpus, of_leaf.objective, self._plan.layout(phase, leaf), length, epoch)

    def _provenance(self, read: ReadRows, arrangement: Arrangement) -> list[Provenance]:
        """Say where the segments of every sequence came from; the tokens of a pair's target count on from its source's."""
        count = read.texts.items.size
        corpora = [run.corpus for run in read.sources for _ in range(run.segments)]
        items, names = self._reader.corpus_items(read).tolist(), self._reader.names(read)
        begins = read.texts.offsets + np.cumsum(read.texts.lengths, axis=0) - read.texts.lengths  # [sides, S]
        spans = list(zip(begins.ravel().tolist(), (begins + read.texts.lengths).ravel().tolist(), strict=True))
        sources = [
            SegmentSource(corpora[text % count], items[text % count], names[text % count], *spans[text])
            for text in arrangement.texts.tolist()
        ]
        return [tuple(sources[first:last]) for first, last in pairwise([0, *np.cumsum(arrangement.stretches_per_sequence).tolist()])]


def _parts(rows: BatchRows, sizes: Sequence[int]) -> Iterator[tuple[BatchRows, list[int]]]:
    """Cut rows into parts of whole micro-batches that are built in one go, each with the sizes of its micro-batches."""
    most = max(1, POSITIONS_AT_ONCE // rows.sequence_length)
    first = 0
    part: list[int] = []
    for size in sizes:
        if part and sum(part) + size > most:
            yield rows.take(np.arange(first, first + sum(part))), part
            first += sum(part)
            part = []
        part.append(size)
    if part:
        yield rows.take(np.arange(first, first + sum(part))), part
