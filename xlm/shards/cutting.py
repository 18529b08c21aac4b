"""Where documents may be cut so that their pieces fit a row.

A cut falls before a sentence where sentences are known, else before a word, and inside a word only when
that word alone is longer than a row. Each piece is as long as the best kind of cut allows.

All documents of a shard are cut side by side, one piece of each in a round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Spans:
    """Stretches of documents: ``item``, ``start`` and ``end`` are [spans] int64, tokens counted inside the document."""

    item: Offsets
    start: Offsets
    end: Offsets

    def __len__(self) -> int:
        return len(self.item)

    @property
    def lengths(self) -> Offsets:
        """Tokens of each, [spans]."""
        return self.end - self.start

    def take(self, places: npt.NDArray[np.generic]) -> Spans:
        """Return the spans at these places, or where a mask is True."""
        return Spans(self.item[places], self.start[places], self.end[places])

    @classmethod
    def joined(cls, *parts: Spans) -> Spans:
        """Return the spans of all parts, by item and then start."""
        item, start, end = (np.concatenate([getattr(part, name) for part in parts]) for name in ("item", "start", "end"))
        order = np.lexsort((start, item))
        return cls(item[order], start[order], end[order])


def cut(spans: Spans, capacity: int, offsets: Offsets, *cut_points: Offsets) -> Spans:
    """Cut spans into pieces of at most ``capacity`` tokens, in order, every token once.

    Document i begins at ``offsets[i]`` of the shard's flat tokens. ``cut_points`` are ascending places there,
    best kind first: a piece ends at the last point of the best kind within its reach.
    """
    long = spans.lengths > capacity
    base = offsets[spans.item[long]]
    item, start, last = spans.item[long], base + spans.start[long], base + spans.end[long]
    done = [spans.take(~long)]
    while len(item):
        end = np.minimum(start + capacity, last)
        unfinished = end < last
        end[unfinished] = _cut_before(start[unfinished], end[unfinished], cut_points)
        base = offsets[item]
        done.append(Spans(item, start - base, end - base))
        item, start, last = item[unfinished], end[unfinished], last[unfinished]
    return Spans.joined(*done)


def split(spans: Spans, offsets: Offsets, points: Offsets) -> Spans:
    """Split spans at every one of ``points`` (ascending places in the shard's flat tokens) that falls inside them."""
    base = offsets[spans.item]
    first = np.searchsorted(points, base + spans.start, side="right")
    inside = np.maximum(np.searchsorted(points, base + spans.end, side="left") - first, 0)
    pieces = inside + 1
    item = np.repeat(spans.item, pieces)
    start, end = np.repeat(spans.start, pieces), np.repeat(spans.end, pieces)
    # Piece k of a span begins at its point k - 1 and ends at its point k.
    number = np.arange(len(item)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    point = np.repeat(first, pieces) + number
    begins, ends = number > 0, number < np.repeat(inside, pieces)
    start[begins] = points[point[begins] - 1] - offsets[item[begins]]
    end[ends] = points[point[ends]] - offsets[item[ends]]
    return Spans(item, start, end)


def _cut_before(start: Offsets, limit: Offsets, cut_points: tuple[Offsets, ...]) -> Offsets:
    """Return the best place in (start, limit] for each piece to end: of the first kind that has one, the last; else the limit."""
    end = limit.copy()
    open_ = np.ones(len(start), dtype=bool)
    for points in cut_points:
        if not len(points):
            continue
        place = np.searchsorted(points, limit, side="right") - 1
        found = points[np.maximum(place, 0)]
        usable = open_ & (place >= 0) & (found > start)
        end[usable] = found[usable]
        open_ &= ~usable
    return end
