"""From a corpus and a vocabulary to token shards and row plans, with everything left out counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from pathlib import Path
from typing import TypeVar

from xlm.corpora.documents import split_pair_name
from xlm.corpora.store import count_documents, count_pairs, document_languages, pair_names, read_documents, read_pairs
from xlm.runs.progress import Progress
from xlm.seeding import keyed_generator
from xlm.shards.encode import DistinctEncoder
from xlm.shards.format import Kind
from xlm.shards.index import CorpusEntry, PlanEntry, ShardIndex
from xlm.shards.plan_requests import PlanRequest
from xlm.shards.reader import TokenShard
from xlm.shards.row_plan import PAIR_OBJECTIVES, RowPlan, Segments, document_segments, pack_rows, pair_segments
from xlm.shards.writer import ShardWriter
from xlm.vocab.vocabulary import Vocabulary

Item = TypeVar("Item")
_BATCH_ITEMS = 8192
EMPTY = "empty: no tokens"
TOO_LONG = "too long: does not fit a row"


@dataclass(frozen=True)
class ShardBuilder:
    """Writes the shards folder of one corpus folder; ``seed`` keys the row plans."""

    corpus_folder: Path
    folder: Path
    vocabulary: Vocabulary
    items_per_shard: int
    variants: int
    seed: int

    def build(self, requests: Sequence[PlanRequest]) -> ShardIndex:
        """Tokenise every corpus, plan the rows asked for, write ``index.json`` and return it."""
        corpora = {entry.name: entry for entry in self._tokenise()}
        plans = {}
        with Progress("row plans", total=len(requests) * self.variants, unit="plans") as progress:
            for request in requests:
                for plan in self._plan(corpora[request.corpus], request):
                    plans[(plan.corpus, plan.objective, plan.length, plan.variant)] = plan
                    progress.advance(note=plan.corpus)
        index = ShardIndex(self.vocabulary.fingerprint, self.variants, corpora, plans)
        index.save(self.folder)
        return index

    def _tokenise(self) -> Iterator[CorpusEntry]:
        languages, pairs = document_languages(self.corpus_folder), pair_names(self.corpus_folder)
        total = sum(count_documents(self.corpus_folder, name) for name in languages)
        total += sum(count_pairs(self.corpus_folder, name) for name in pairs)
        encoder = DistinctEncoder(self.vocabulary)
        with Progress("tokenise", total=total, unit="items") as progress:
            for language in languages:
                yield self._tokenise_documents(language, encoder, progress)
            for name in pairs:
                yield self._tokenise_pairs(name, encoder, progress)

    def _writer(self, name: str, kind: Kind, languages: tuple[str, ...]) -> ShardWriter:
        return ShardWriter(
            self.folder,
            name,
            kind,
            languages,
            vocabulary_fingerprint=self.vocabulary.fingerprint,
            token_dtype=self.vocabulary.token_dtype,
            items_per_shard=self.items_per_shard,
        )

    def _tokenise_documents(self, language: str, encoder: DistinctEncoder, progress: Progress) -> CorpusEntry:
        writer = self._writer(language, "monolingual", (language,))
        dropped: Counter[str] = Counter()
        for batch in _batches(read_documents(self.corpus_folder, language)):
            # Documents without sentences are encoded together; the others need offsets, one by one.
            plain = iter(encoder.encode([document.text for document in batch if document.sentence_starts is None]))
            for document in batch:
                if document.sentence_starts is None:
                    ids, starts = next(plain), None
                else:
                    ids, starts = encoder.encode_with_sentences(document.text, document.sentence_starts)
                if len(ids):
                    writer.add(document.id, ids, sentence_starts=starts)
                else:
                    dropped[EMPTY] += 1
            progress.advance(len(batch), note=language)
        return replace(writer.close(), dropped=dict(dropped))

    def _tokenise_pairs(self, name: str, encoder: DistinctEncoder, progress: Progress) -> CorpusEntry:
        writer = self._writer(name, "pair", split_pair_name(name))
        dropped: Counter[str] = Counter()
        for batch in _batches(read_pairs(self.corpus_folder, name)):
            sources = encoder.encode([pair.source for pair in batch])
            targets = encoder.encode([pair.target for pair in batch])
            for pair, source, target in zip(batch, sources, targets, strict=True):
                if len(source) and len(target):
                    writer.add(pair.key, source, target)
                else:
                    dropped[EMPTY] += 1
            progress.advance(len(batch), note=name)
        return replace(writer.close(), dropped=dict(dropped))

    def _plan(self, corpus: CorpusEntry, request: PlanRequest) -> Iterator[PlanEntry]:
        shards = [TokenShard.open(self.folder / file.path, corpus.kind, self.vocabulary.fingerprint) for file in corpus.files]
        found = [self._segments(shard, request) for shard in shards]
        too_long = sum(dropped for _, dropped in found)
        for variant in range(self.variants):
            plan = RowPlan.concatenate(
                [self._pack(segments, request, variant, shard) for shard, (segments, _) in enumerate(found)],
                [0, *accumulate(file.items for file in corpus.files)][:-1],
            )
            file = f"plans/{request.corpus}-{request.objective}-{request.length}-v{variant}.arrow"
            plan.write(self.folder / file)
            yield PlanEntry(
                corpus=request.corpus,
                objective=request.objective,
                length=request.length,
                variant=variant,
                rows=plan.rows,
                segments=len(plan.segments),
                fill=round(plan.fill(request.objective, request.length), 6),
                file=file,
                dropped={TOO_LONG: too_long} if too_long else {},
            )

    def _segments(self, shard: TokenShard, request: PlanRequest) -> tuple[Segments, int]:
        if request.objective in PAIR_OBJECTIVES:
            source, target = (offsets[1:] - offsets[:-1] for offsets in shard.offsets)
            return pair_segments(source, target, objective=request.objective, length=request.length)
        segments = document_segments(
            shard.tokens[0], shard.offsets[0], shard.sentence_starts(), self.vocabulary.is_word_start, length=request.length
        )
        return segments, 0

    def _pack(self, segments: Segments, request: PlanRequest, variant: int, shard: int) -> RowPlan:
        generator = keyed_generator(self.seed, "row plan", request.corpus, request.objective, request.length, variant, shard)
        return pack_rows(segments, objective=request.objective, length=request.length, generator=generator)


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    remaining = iter(items)
    while batch := list(islice(remaining, _BATCH_ITEMS)):
        yield batch
