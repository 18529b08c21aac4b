"""One task of the stage: from a stretch of a corpus to its token shard and the blocks of its row plans.

A task reads nothing that another task writes, and what it writes depends on nothing but the corpus, the
vocabulary and the recipe, so shards are the same whoever makes them, where and in which order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from xlm.seeding import keyed_generator
from xlm.shards.block_plan import block_plan
from xlm.shards.encode import DistinctEncoder, Ids
from xlm.shards.index import PlanFile, ShardFile
from xlm.shards.layouts import Layout
from xlm.shards.partition import ShardTask
from xlm.shards.piece_counts import Counts, count_pieces
from xlm.shards.reader import TokenShard
from xlm.shards.turns import read_turns, takes_part
from xlm.shards.writer import ShardWriter
from xlm.vocab.vocabulary import Vocabulary

EMPTY = "empty: no tokens"


@dataclass(frozen=True)
class PlanBlock:
    """One block of a row plan as it was written; ``used`` counts positions, special pieces included."""

    layout: Layout
    length: int
    variant: int
    file: PlanFile
    segments: int
    text_tokens: int
    used: int
    dropped: Mapping[str, int]


@dataclass(frozen=True)
class ShardResult:
    """What a task wrote; the files themselves are in the shards folder."""

    file: ShardFile
    dropped: Mapping[str, int]
    blocks: tuple[PlanBlock, ...]
    piece_counts: Counts


class ShardWork:
    """Does the tasks of one worker, which keeps its encoder's memory from task to task."""

    def __init__(
        self, folder: Path, vocabulary: Vocabulary, layouts: Mapping[str, Sequence[tuple[Layout, int]]], variants: int, seed: int
    ) -> None:
        """``layouts`` names the layouts and lengths that rows of each corpus are planned for."""
        self._folder, self._vocabulary, self._layouts = folder, vocabulary, layouts
        self._variants, self._seed = variants, seed
        self._encoder = DistinctEncoder(vocabulary)

    def __call__(self, task: ShardTask) -> ShardResult:
        """Write the shard of a task and the blocks made from it."""
        source = task.source
        writer = ShardWriter(
            source.name,
            source.kind,
            source.languages,
            vocabulary_fingerprint=self._vocabulary.fingerprint,
            token_dtype=self._vocabulary.token_dtype,
        )
        kept = self._tokenise(task, writer)
        file = writer.write(self._folder, task.number)
        del writer
        shard = TokenShard.open(self._folder / file.path, source.kind, self._vocabulary.fingerprint, self._vocabulary.size)
        empty = int((~kept).sum())
        return ShardResult(
            file=file,
            dropped={EMPTY: empty} if empty else {},
            blocks=tuple(self._blocks(task, shard, kept)),
            piece_counts=count_pieces(shard.tokens, self._vocabulary.size),
        )

    def _tokenise(self, task: ShardTask, writer: ShardWriter) -> npt.NDArray[np.bool_]:
        """Add the items of a task to the writer; return which [items] had tokens."""
        kept: list[bool] = []
        for batch in task.source.read(task.first_item, task.items, task.source.columns):
            names, *columns = (column.to_pylist() for column in batch.columns)
            starts: Sequence[Sequence[int] | None] = [None] * len(names)
            if task.source.kind == "monolingual":
                documents, starts = self._documents(*columns)
                sides = [documents]
            else:
                sides = [self._encoder.encode(texts) for texts in columns]
            for name, of_item, *ids in zip(names, starts, *sides, strict=True):
                kept.append(all(map(len, ids)))
                if kept[-1]:
                    writer.add(name, *ids, sentence_starts=of_item)
        return np.array(kept, dtype=np.bool_)

    def _documents(self, texts: list[str], starts: list[list[int] | None]) -> tuple[list[Ids], list[list[int] | None]]:
        """Return the ids of documents, and the tokens at which their sentences begin where those are known."""
        # Documents without sentences are encoded together; the others need offsets, one by one.
        plain = iter(self._encoder.encode([text for text, known in zip(texts, starts, strict=True) if known is None]))
        encoded = [
            (next(plain), None) if known is None else self._encoder.encode_with_sentences(text, known)
            for text, known in zip(texts, starts, strict=True)
        ]
        return [ids for ids, _ in encoded], [found for _, found in encoded]

    def _blocks(self, task: ShardTask, shard: TokenShard, kept: npt.NDArray[np.bool_]) -> Iterator[PlanBlock]:
        name = task.source.name
        turns = None if task.source.turns is None else read_turns(task.source.turns, task.first_item, task.items)[kept]
        for layout, length in self._layouts.get(name, ()):
            for variant in range(self._variants):
                plan, dropped = block_plan(
                    shard,
                    layout,
                    length,
                    is_word_start=self._vocabulary.is_word_start,
                    generator=keyed_generator(self._seed, "row plan", name, layout, length, variant, task.number),
                    chosen=None if turns is None else takes_part(turns, variant),
                )
                path = f"plans/{name}-{layout}-{length}-v{variant}-{task.number:05d}.arrow"
                facts = plan.write(self._folder / path)
                yield PlanBlock(
                    layout=layout,
                    length=length,
                    variant=variant,
                    file=PlanFile(path, plan.rows, facts.size_bytes, facts.sha256),
                    segments=len(plan.segments),
                    text_tokens=plan.text_tokens,
                    used=plan.used(layout),
                    dropped=dropped,
                )
