"""Which items make a shard: decided from the corpus alone, before anything is tokenised.

So every shard can be made by itself, anywhere and in any order, and comes out the same. Items that turn out
to have no tokens are left out of their shard and move nothing into another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xlm.shards.source import Source

# A token is about four bytes of text and never less than one, so a shard's ids take half a gigabyte at the very most.
MAX_TEXT_BYTES = 256 << 20


@dataclass(frozen=True)
class ShardTask:
    """Shard ``number`` of a corpus: ``items`` items of it from ``first_item`` on."""

    source: Source
    number: int
    first_item: int
    items: int


@dataclass(frozen=True)
class Partition:
    """Cuts a corpus into shards; callable, so that a backend can do it where the corpus is read."""

    items_per_shard: int
    max_text_bytes: int = MAX_TEXT_BYTES

    def __call__(self, source: Source) -> list[ShardTask]:
        """Return the tasks of a corpus; reads its text once, a batch at a time."""
        tasks: list[ShardTask] = []
        first = 0
        for items in shard_sizes(source.text_bytes(), self.items_per_shard, self.max_text_bytes):
            tasks.append(ShardTask(source, len(tasks), first, items))
            first += items
        return tasks


def shard_sizes(text_bytes: Iterable[npt.NDArray[np.int64]], max_items: int, max_bytes: int) -> Iterator[int]:
    """Yield the items of each shard, as many as both limits allow; an item longer than ``max_bytes`` is a shard of its own.

    ``text_bytes`` are the lengths of the items, in order, in batches of any size.
    """
    items, used = 0, 0
    for lengths in text_bytes:
        ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
        place = 0  # items of this batch that have a shard
        while place < len(lengths):
            fitting = int(np.searchsorted(ends, ends[place] + max_bytes - used, side="right")) - 1 - place
            taken = min(max(fitting, 0), max_items - items)
            if taken == 0 and items == 0:
                taken = 1
            used += int(ends[place + taken] - ends[place])
            items += taken
            place += taken
            if place < len(lengths):
                yield items
                items, used = 0, 0
    if items:
        yield items
