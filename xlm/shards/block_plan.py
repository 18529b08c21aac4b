"""From one token shard to one block of a row plan, by layout.

Units (pieces of documents, whole pairs, two pieces that follow each other) are shuffled by a key before they
are packed, so that the variants of a plan put different neighbours together. Text is packed in decreasing
order, which fills best; pairs in shuffled order, which keeps rows alike (`xlm.shards.packing`). Full
sentences are not packed but laid one after the other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from xlm.shards.cutting import Spans
from xlm.shards.documents import Documents
from xlm.shards.full_sentences import full_sentence_rows
from xlm.shards.layouts import RULES, Layout
from xlm.shards.packing import best_fit
from xlm.shards.reader import TokenShard
from xlm.shards.row_plan import RowPlan, Segments
from xlm.shards.sentence_units import exchange, sentence_units

TOO_LONG = "too long: does not fit a row"
ONE_SENTENCE = "fewer than two known sentences"
KEPT = "not left out: kept its own next sentence, no other fits"


def block_plan(
    shard: TokenShard,
    layout: Layout,
    length: int,
    *,
    is_word_start: npt.NDArray[np.bool_],
    generator: np.random.Generator,
    chosen: npt.NDArray[np.bool_] | None = None,
) -> tuple[RowPlan, dict[str, int]]:
    """Plan the rows of one shard; return them and the items left out, counted by reason.

    ``length`` is in positions, special pieces included. ``is_word_start`` [vocabulary] flags the pieces that
    begin a word. ``chosen`` [items] says which pairs take part in this variant (None: all); the others are
    not counted as left out.
    """
    if RULES[layout].kind == "pair":
        units, too_long = pair_segments(shard, layout, length, chosen)
        return pack(units, layout, length, generator, decreasing=False), _counted({TOO_LONG: too_long})
    documents = Documents(shard, is_word_start)
    capacity = length - RULES[layout].per_unit - RULES[layout].per_segment
    if layout == "documents":
        return pack(_segments(documents.pieces(capacity)), layout, length, generator, decreasing=True), {}
    if layout == "full_sentences":
        return full_sentence_rows(documents.sentences(capacity), length, generator), {}
    first, second, alone = sentence_units(documents, capacity, generator)
    counts = {ONE_SENTENCE: alone}
    if layout == "next_sentence":
        second, kept = exchange(first, second, capacity, generator)
        counts[KEPT] = kept
    return pack(_segments(_interleaved(first, second)), layout, length, generator, decreasing=True), _counted(counts)


def pair_segments(shard: TokenShard, layout: Layout, length: int, chosen: npt.NDArray[np.bool_] | None = None) -> tuple[Segments, int]:
    """Return the chosen pairs that fit a row, whole (start 0, end = both lengths in tokens), and how many do not fit."""
    source, target = (np.diff(offsets) for offsets in shard.offsets)
    both = source + target
    fits = both + RULES[layout].per_unit <= length
    taken = np.ones(len(both), dtype=bool) if chosen is None else chosen
    kept = np.flatnonzero(fits & taken)
    return _segments(Spans(kept, np.zeros_like(kept), both[kept])), int((taken & ~fits).sum())


def pack(units: Segments, layout: Layout, length: int, generator: np.random.Generator, *, decreasing: bool) -> RowPlan:
    """Shuffle units (of as many segments each as the layout says, in order) and pack them into rows of ``length`` positions."""
    rule = RULES[layout]
    size = rule.segments_per_unit or 1
    costs = units.lengths.reshape(-1, size).sum(axis=1) + rule.per_unit + rule.per_segment * size
    order = generator.permutation(len(costs))
    if decreasing:
        order = order[np.argsort(-costs[order], kind="stable")]
    row_of = best_fit(costs[order], length)
    rows = int(row_of.max()) + 1 if len(row_of) else 0
    offsets = np.zeros(rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(row_of, minlength=rows) * size, out=offsets[1:])
    places = order[np.argsort(row_of, kind="stable")]
    return RowPlan(offsets, units.take((places[:, None] * size + np.arange(size)).ravel()))


def _segments(spans: Spans) -> Segments:
    return Segments(spans.item.astype(np.uint32), spans.start.astype(np.uint32), spans.end.astype(np.uint32))


def _interleaved(first: Spans, second: Spans) -> Spans:
    """Return A, B, A, B, ... of units (A, B)."""
    return Spans(*(np.stack([getattr(first, name), getattr(second, name)], axis=1).ravel() for name in ("item", "start", "end")))


def _counted(reasons: dict[str, int]) -> dict[str, int]:
    return {reason: count for reason, count in reasons.items() if count}
