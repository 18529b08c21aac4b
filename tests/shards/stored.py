"""Rows and items of a shards folder one by one, the slow and plain way."""

from typing import NamedTuple

from xlm.shards.format import NAME_COLUMN


class Segment(NamedTuple):
    """A piece of an item in a row; items count over the corpus, pairs are whole (end = both lengths)."""

    item: int
    start: int
    end: int


def row_of(shards, corpus, layout, length, variant, row):
    """Return the segments of one row of a plan."""
    for block, rows in enumerate(shards.index.plan(corpus, layout, length, variant).block_rows):
        if row < rows:
            plan, first = shards.block(corpus, layout, length, variant, block), shards.first_item(corpus, block)
            found = plan.segments.take(range(plan.offsets[row], plan.offsets[row + 1]))
            columns = (found.item.tolist(), found.start.tolist(), found.end.tolist())
            return [Segment(first + item, start, end) for item, start, end in zip(*columns, strict=True)]
        row -= rows
    raise IndexError


def item_of(shards, corpus, item):
    """Return an item's name and the ids of its sides."""
    for number, file in enumerate(shards.index.corpus(corpus).files):
        if item < file.items:
            shard = shards.shard(corpus, number)
            name = shard.batch.column(NAME_COLUMN[shards.index.corpus(corpus).kind])[item].as_py()
            return name, tuple(shard.side(side, item) for side in range(len(shard.tokens)))
        item -= file.items
    raise IndexError


def document_tokens(shards, corpus, item):
    """Return the ids of a document."""
    (ids,) = item_of(shards, corpus, item)[1]
    return ids
