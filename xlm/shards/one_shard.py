"""One task of the stage: from a stretch of a corpus to its token shard and the blocks of its row plans.

A task reads nothing that another task writes, and what it writes depends on nothing but the corpus, the
vocabulary and the recipe, so shards are the same whoever makes them, where and in which order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from xlm.seeding import keyed_generator
from xlm.shards.block_plan import block_plan
from xlm.shards.encode import DistinctEncoder, Ids
from xlm.shards.format import Kind
from xlm.shards.held_out import HELD_OUT, HeldOutItems, HeldOutTexts, held_out_items
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
        self,
        folder: Path,
        vocabulary: Vocabulary,
        layouts: Mapping[str, Sequence[tuple[Layout, int]]],
        variants: int,
        seed: int,
        held_out: HeldOutTexts | None = None,
    ) -> None:
        """``layouts`` names the layouts and lengths that rows of each corpus are planned for."""
        self._folder, self._vocabulary, self._layouts = folder, vocabulary, layouts
        self._variants, self._seed, self._held_out = variants, seed, held_out
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
        kept, split = self._tokenise(task, writer)
        file = writer.write(self._folder, task.number)
        del writer
        shard = TokenShard.open(self._folder / file.path, source.kind, self._vocabulary.fingerprint, self._vocabulary.size)
        empty = int((~kept).sum())
        return ShardResult(
            file=file,
            dropped={EMPTY: empty} if empty else {},
            blocks=tuple(self._blocks(task, shard, kept, split)),
            piece_counts=count_pieces(shard.tokens, self._vocabulary.size),
        )

    def _tokenise(self, task: ShardTask, writer: ShardWriter) -> tuple[npt.NDArray[np.bool_], HeldOutItems | None]:
        """Add the items of a task to the writer; return which [items] had tokens, and which of those [kept] are held out."""
        kept: list[bool] = []
        splits: list[HeldOutItems] = []
        for batch in task.source.read(task.first_item, task.items, task.source.columns):
            names, *columns = (column.to_pylist() for column in batch.columns)
            if self._held_out is not None:
                splits.append(held_out_items(self._held_out, names, columns if task.source.kind == "pair" else columns[:1]))
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
        had_tokens = np.array(kept, dtype=np.bool_)
        return had_tokens, _joined(splits).take(had_tokens) if splits else None

    def _documents(self, texts: list[str], starts: list[list[int] | None]) -> tuple[list[Ids], list[list[int] | None]]:
        """Return the ids of documents, and the tokens at which their sentences begin where those are known."""
        # Documents without sentences are encoded together; the others need offsets, one by one.
        plain = iter(self._encoder.encode([text for text, known in zip(texts, starts, strict=True) if known is None]))
        encoded = [
            (next(plain), None) if known is None else self._encoder.encode_with_sentences(text, known)
            for text, known in zip(texts, starts, strict=True)
        ]
        return [ids for ids, _ in encoded], [found for _, found in encoded]

    def _blocks(self, task: ShardTask, shard: TokenShard, kept: npt.NDArray[np.bool_], split: HeldOutItems | None) -> Iterator[PlanBlock]:
        turns = None if task.source.turns is None else read_turns(task.source.turns, task.first_item, task.items)[kept]
        everything = np.ones(shard.items, dtype=np.bool_)
        for layout, length in self._layouts.get(task.source.name, ()):
            for variant in range(self._variants):
                wanted = everything if turns is None else takes_part(turns, variant)
                taken = wanted if split is None else wanted & split.trained
                block = self._block(task, shard, layout, length, variant, taken)
                left_out = int((wanted & ~taken).sum())
                yield replace(block, dropped={**block.dropped, HELD_OUT: left_out}) if left_out else block
        if split is not None and self._layouts.get(task.source.name):
            layout, length = held_out_plan(task.source.kind, self._layouts)
            yield self._block(task, shard, layout, length, self._variants, split.validated)

    def _block(
        self, task: ShardTask, shard: TokenShard, layout: Layout, length: int, variant: int, taken: npt.NDArray[np.bool_]
    ) -> PlanBlock:
        name = task.source.name
        label = "held-out" if variant == self._variants else f"v{variant}"
        plan, dropped = block_plan(
            shard,
            layout,
            length,
            is_word_start=self._vocabulary.is_word_start,
            generator=keyed_generator(self._seed, "row plan", name, layout, length, variant, task.number),
            chosen=taken,
        )
        path = f"plans/{name}-{layout}-{length}-{label}-{task.number:05d}.arrow"
        facts = plan.write(self._folder / path)
        return PlanBlock(
            layout=layout,
            length=length,
            variant=variant,
            file=PlanFile(path, plan.rows, facts.size_bytes, facts.sha256),
            segments=len(plan.segments),
            text_tokens=plan.text_tokens,
            used=plan.used(layout),
            dropped=dropped,
        )


def held_out_plan(kind: Kind, layouts: Mapping[str, Sequence[tuple[Layout, int]]]) -> tuple[Layout, int]:
    """Return how held-out items are laid out, whatever training does with the rest: at the longest length of any corpus."""
    length = max(length for of_corpus in layouts.values() for _, length in of_corpus)
    return ("documents" if kind == "monolingual" else "pairs"), length


def _joined(parts: Sequence[HeldOutItems]) -> HeldOutItems:
    return HeldOutItems(np.concatenate([part.trained for part in parts]), np.concatenate([part.validated for part in parts]))
