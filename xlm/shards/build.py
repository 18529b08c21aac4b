"""From a corpus and a vocabulary to token shards and row plans, with everything left out counted.

The corpora are cut into tasks, a backend does them, and what the tasks say of themselves is joined in their order.
"""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from xlm.runs.progress import Progress
from xlm.shards.backends import Backend, LocalBackend
from xlm.shards.held_out import HeldOutTexts
from xlm.shards.index import CorpusEntry, PlanEntry, PlanKey, ShardFile, ShardIndex
from xlm.shards.layouts import Layout
from xlm.shards.n_way import NWaySummary, n_way_sources
from xlm.shards.one_shard import PlanBlock, ShardWork, held_out_plan
from xlm.shards.partition import MAX_TEXT_BYTES, Partition, ShardTask
from xlm.shards.piece_counts import save_piece_counts
from xlm.shards.plan_requests import PlanRequest
from xlm.shards.source import Source, corpus_sources
from xlm.shards.writer import corpus_entry
from xlm.vocab.vocabulary import Vocabulary

_THIS_PROCESS = LocalBackend()


@dataclass(frozen=True)
class BuiltShards:
    """The index of what was built, and what n-way pairs were found (None: not asked for)."""

    index: ShardIndex
    n_way: NWaySummary | None


@dataclass(frozen=True)
class ShardBuilder:
    """Writes the shards folder of one corpus folder; ``seed`` keys the row plans.

    ``held_out_share`` of the items are set aside for validation (`xlm.shards.held_out`): their rows are a plan's variant
    ``variants``, one beyond those of training. ``n_way``: with pair corpora of every two languages that share texts.
    ``backend`` decides nothing but the time.
    """

    corpus_folder: Path
    folder: Path
    vocabulary: Vocabulary
    items_per_shard: int
    variants: int
    seed: int
    n_way: bool = False
    held_out_share: float = 0.0
    text_bytes_per_shard: int = MAX_TEXT_BYTES
    backend: Backend = _THIS_PROCESS

    def build(self, requests: Sequence[PlanRequest]) -> BuiltShards:
        """Tokenise every corpus, plan the rows asked for and write ``index.json``."""
        # Beside the shards, because every machine that works on them sees this folder; whole paths, because workers
        # elsewhere have other working folders.
        work = self.folder.resolve() / ".n_way"
        try:
            sources, n_way = self._sources(work)
            return BuiltShards(self._build(sources, requests), n_way)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _sources(self, work: Path) -> tuple[list[Source], NWaySummary | None]:
        sources = corpus_sources(self.corpus_folder.resolve())
        pairs = [source for source in sources if source.kind == "pair"]
        if not self.n_way or not pairs:
            return sources, None
        n_way, summary = n_way_sources(pairs, work, variants=self.variants, seed=self.seed)
        return [source for source in sources if source.kind != "pair"] + n_way, summary

    def _build(self, sources: Sequence[Source], requests: Sequence[PlanRequest]) -> ShardIndex:
        tasks = self._tasks(sources)
        layouts: dict[str, list[tuple[Layout, int]]] = defaultdict(list)
        for request in requests:
            layouts[request.corpus].append((request.layout, request.length))
        held_out = HeldOutTexts.of(sources, self.held_out_share) if self.held_out_share else None
        work = partial(ShardWork, self.folder.resolve(), self.vocabulary, dict(layouts), self.variants, self.seed, held_out)
        piece_counts = np.zeros(self.vocabulary.size, dtype=np.uint64)
        files: dict[int, ShardFile] = {}
        blocks: dict[int, tuple[PlanBlock, ...]] = {}
        dropped: dict[str, Counter[str]] = {source.name: Counter() for source in sources}
        with Progress("shards", total=sum(task.items for task in tasks), unit="items") as progress:
            for number, result in self.backend.map(work, tasks):
                task = tasks[number]
                files[number], blocks[number] = result.file, result.blocks
                dropped[task.source.name].update(result.dropped)
                piece_counts += result.piece_counts
                progress.advance(task.items, note=task.source.name)
        numbers: dict[str, list[int]] = {source.name: [] for source in sources}
        for number, task in enumerate(tasks):
            numbers[task.source.name].append(number)
        corpora = {
            source.name: _corpus(source, [files[number] for number in numbers[source.name]], dropped[source.name]) for source in sources
        }
        plans: dict[PlanKey, PlanEntry] = {}
        for source in sources:
            asked = [(layout, length, variant) for layout, length in layouts[source.name] for variant in range(self.variants)]
            if asked and self.held_out_share:
                asked.append((*held_out_plan(source.kind, layouts), self.variants))
            of_corpus = [block for number in numbers[source.name] for block in blocks[number]]
            plans.update(_plans(source.name, asked, of_corpus))
        index = ShardIndex(
            vocabulary_fingerprint=self.vocabulary.fingerprint,
            variants=self.variants,
            corpora=corpora,
            plans=plans,
            piece_counts=save_piece_counts(self.folder, piece_counts),
            held_out_share=self.held_out_share,
        )
        index.save(self.folder)
        return index

    def _tasks(self, sources: Sequence[Source]) -> list[ShardTask]:
        cut = partial(Partition, self.items_per_shard, self.text_bytes_per_shard)
        found = dict(self.backend.map(cut, sources))
        return [task for number in range(len(sources)) for task in found[number]]


def _corpus(source: Source, files: Iterable[ShardFile], dropped: Mapping[str, int]) -> CorpusEntry:
    return corpus_entry(source.name, source.kind, source.languages, files, dropped)


def _plans(corpus: str, asked: Iterable[tuple[Layout, int, int]], blocks: Iterable[PlanBlock]) -> Iterator[tuple[PlanKey, PlanEntry]]:
    """Join the blocks of a corpus, in the order of its shards, to row plans."""
    by_plan: dict[tuple[Layout, int, int], list[PlanBlock]] = defaultdict(list)
    for block in blocks:
        by_plan[(block.layout, block.length, block.variant)].append(block)
    for layout, length, variant in asked:
        found = by_plan[(layout, length, variant)]
        rows = sum(block.file.rows for block in found)
        dropped: Counter[str] = Counter()
        for block in found:
            dropped.update(block.dropped)
        yield (
            (corpus, layout, length, variant),
            PlanEntry(
                corpus=corpus,
                layout=layout,
                length=length,
                variant=variant,
                rows=rows,
                segments=sum(block.segments for block in found),
                text_tokens=sum(block.text_tokens for block in found),
                fill=round(sum(block.used for block in found) / (rows * length), 6) if rows else 1.0,
                files=tuple(block.file for block in found),
                dropped=dict(dropped),
            ),
        )
