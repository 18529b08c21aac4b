"""From one token shard to one block of a row plan, by layout.

Items come in an order drawn from a generator, so that the variants of a plan put different neighbours
together. Pairs, and documents that fit a row, stay whole (`xlm.shards.packing`); longer documents and the sentences of
full-sentences rows fill rows with what may be cut off them (`xlm.shards.filling`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from xlm.shards.documents import LEAST_PIECE, Documents
from xlm.shards.filling import Filler
from xlm.shards.layouts import RULES, Layout
from xlm.shards.packing import best_fit, fill_in_order
from xlm.shards.reader import TokenShard
from xlm.shards.row_plan import RowPlan, Segments
from xlm.shards.sentence_units import exchange, sentence_units

TOO_LONG = "too long: does not fit a row"
ONE_SENTENCE = "fewer than two known sentences"
KEPT = "not left out: kept its own next sentence, no other fits"
# How empty rows may be on average before it takes longer to fill them: text that can be cut is to fill 99.5 %.
EMPTY_SHARE = 0.0035

Numbers = npt.NDArray[np.int64]


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
    begin a word. ``chosen`` [items] says which items take part (None: all); the others are not counted as left out.
    """
    taken = np.ones(shard.items, dtype=np.bool_) if chosen is None else chosen
    if layout == "documents":
        return _documents(shard, length, is_word_start, generator, taken), {}
    if layout == "full_sentences":
        return _full_sentences(shard, length, is_word_start, generator, taken), {}
    if RULES[layout].kind == "pair":
        return _pairs(shard, layout, length, generator, taken)
    return _sentence_units(shard, layout, length, is_word_start, generator, taken)


def _pairs(
    shard: TokenShard, layout: Layout, length: int, generator: np.random.Generator, taken: npt.NDArray[np.bool_]
) -> tuple[RowPlan, dict[str, int]]:
    source, target = (np.diff(offsets) for offsets in shard.offsets)
    both, cost = source + target, RULES[layout].per_unit
    fits = both + cost <= length
    kept = generator.permutation(np.flatnonzero(fits & taken))
    row = fill_in_order(both[kept] + cost, length, empty_share=EMPTY_SHARE)
    return _plan(row, kept, np.zeros_like(kept), both[kept]), _counted({TOO_LONG: int((taken & ~fits).sum())})


def _documents(
    shard: TokenShard, length: int, is_word_start: npt.NDArray[np.bool_], generator: np.random.Generator, taken: npt.NDArray[np.bool_]
) -> RowPlan:
    cost = RULES["documents"].per_unit
    lengths = np.diff(shard.offsets[0])
    order = generator.permutation(np.flatnonzero(taken))
    fits = lengths[order] <= length - cost
    short, long = order[fits], order[~fits]
    row = _fullest(lengths[short] + cost, length)
    columns = (row, short, np.zeros_like(short), lengths[short])
    if not len(long):
        return _plan(*columns)
    left = length - np.bincount(row, weights=lengths[short] + cost).astype(np.int64)
    begun = np.flatnonzero(left >= cost + LEAST_PIECE)
    filler = Filler(length, cost, Documents(shard, is_word_start, length - cost, whole_sentences=False), empty_share=EMPTY_SHARE)
    filler.fill(long, lengths[long], begun=list(zip(begun.tolist(), left[begun].tolist(), strict=True)), rows=len(left))
    return _plan(*(np.concatenate(parts) for parts in zip(columns, filler.columns(), strict=True)))


def _fullest(costs: Numbers, length: int) -> Numbers:
    """Return the row [units] of each unit: in about their order, or by decreasing cost where that needs fewer rows."""
    row = fill_in_order(costs, length, empty_share=EMPTY_SHARE)
    rows = int(row.max(initial=-1)) + 1
    if costs.sum() > (1.0 - 1.25 * EMPTY_SHARE) * rows * length:
        return row
    order = np.argsort(-costs, kind="stable")
    other = np.empty_like(row)
    other[order] = best_fit(costs[order], length)
    return other if other.max(initial=-1) + 1 < rows else row


def _full_sentences(
    shard: TokenShard, length: int, is_word_start: npt.NDArray[np.bool_], generator: np.random.Generator, taken: npt.NDArray[np.bool_]
) -> RowPlan:
    rule = RULES["full_sentences"]
    room = length - rule.per_unit
    runs = Documents(shard, is_word_start, room - rule.per_segment, whole_sentences=True)
    lengths = np.diff(shard.offsets[0])
    order = generator.permutation(np.flatnonzero(taken))
    filler = Filler(room, rule.per_segment, runs, empty_share=EMPTY_SHARE)
    filler.fill(order, lengths[order])
    return _plan(*filler.columns())


def _sentence_units(
    shard: TokenShard,
    layout: Layout,
    length: int,
    is_word_start: npt.NDArray[np.bool_],
    generator: np.random.Generator,
    taken: npt.NDArray[np.bool_],
) -> tuple[RowPlan, dict[str, int]]:
    cost = RULES[layout].per_unit
    first, second, alone = sentence_units(shard, is_word_start, length - cost, generator, taken)
    counts = {ONE_SENTENCE: alone}
    if layout == "next_sentence":
        second, counts[KEPT] = exchange(first, second, length - cost, generator)
    order = generator.permutation(len(first))
    first, second = first.take(order), second.take(order)
    row = _fullest(first.lengths + second.lengths + cost, length)
    both = [np.stack(sides, axis=1).ravel() for sides in ((first.item, second.item), (first.start, second.start), (first.end, second.end))]
    return _plan(np.repeat(row, 2), *both), _counted(counts)


def _plan(row: Numbers, item: Numbers, start: Numbers, end: Numbers) -> RowPlan:
    """Return the plan of segments whose rows are known."""
    order = np.argsort(row, kind="stable")
    row, columns = row[order], [column[order].astype(np.uint32) for column in (item, start, end)]
    offsets = np.searchsorted(row, np.arange(int(row.max(initial=-1)) + 2))
    return RowPlan(offsets.astype(np.int64), Segments(*columns))


def _counted(reasons: dict[str, int]) -> dict[str, int]:
    return {reason: count for reason, count in reasons.items() if count}
