"""Row plans: which pieces of which items share a packed row of at most `length` positions.

A plan is built ahead and stored, so that any row can be looked up by its number. Costs count the special
pieces that batching adds: ``<s> segment </s>`` for MLM, ``<s> source </s> target </s>`` for TLM, and two
sequences ``<s> side </s>`` in the same row for a contrastive pair. Segments are shuffled by a key before
they are packed, so that the variants of a plan put different neighbours together.

MLM rows are packed in decreasing order, which fills best; TLM and contrastive rows in shuffled order,
which keeps them alike (`xlm.shards.packing`). Rows never span two shards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from xlm.shards.cutting import cut_document, word_starts
from xlm.shards.format import map_arrow, write_arrow
from xlm.shards.packing import best_fit

# Special pieces an item costs beside its own tokens.
SPECIAL_COST: Mapping[str, int] = {"mlm": 2, "tlm": 3, "contrastive": 4}
PAIR_OBJECTIVES = ("tlm", "contrastive")

Uint32 = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Segments:
    """Pieces of items, not yet in rows: ``item``, ``start``, ``end`` are [segments], offsets in tokens."""

    item: Uint32
    start: Uint32
    end: Uint32

    def __len__(self) -> int:
        return len(self.item)

    def costs(self, objective: str) -> npt.NDArray[np.int64]:
        """Return the positions [segments] that each takes in a row."""
        return self.end.astype(np.int64) - self.start + SPECIAL_COST[objective]

    def take(self, order: npt.NDArray[np.int64]) -> Segments:
        """Return the segments at these indices, in this order."""
        return Segments(self.item[order], self.start[order], self.end[order])


@dataclass(frozen=True)
class RowPlan:
    """Rows of segments: those of row r are ``segments[offsets[r]:offsets[r + 1]]``; offsets are [rows + 1] int64."""

    offsets: npt.NDArray[np.int64]
    segments: Segments

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.offsets) - 1

    def fill(self, objective: str, length: int) -> float:
        """Return the share of positions used, special pieces included; 1.0 for a plan without rows."""
        return float(self.segments.costs(objective).sum() / (self.rows * length)) if self.rows else 1.0

    def write(self, path: Path) -> None:
        """Write the plan as an Arrow IPC file: ``row: large_list<struct<item, start, end>>``."""
        segments = self.segments
        structs = pa.StructArray.from_arrays(
            [pa.array(segments.item), pa.array(segments.start), pa.array(segments.end)], names=["item", "start", "end"]
        )
        rows = pa.LargeListArray.from_arrays(self.offsets, structs)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_arrow(path, pa.record_batch([rows], names=["row"]))

    @classmethod
    def read(cls, path: Path) -> RowPlan:
        """Map a plan into memory; the arrays are views of the file."""
        rows = map_arrow(path).column(0)
        item, start, end = (field.to_numpy() for field in rows.values.flatten())
        return cls(rows.offsets.to_numpy(), Segments(item, start, end))

    @classmethod
    def concatenate(cls, plans: Sequence[RowPlan], item_offsets: Sequence[int]) -> RowPlan:
        """Join the plans of a corpus's shards; ``item_offsets`` is the number of items before each shard."""
        offsets = [np.zeros(1, dtype=np.int64)]
        for plan in plans:
            offsets.append(plan.offsets[1:] + offsets[-1][-1])
        none = np.empty(0, dtype=np.uint32)
        item = [(plan.segments.item + np.uint32(first)) for plan, first in zip(plans, item_offsets, strict=True)]
        segments = Segments(
            np.concatenate([none, *item]),
            np.concatenate([none, *(plan.segments.start for plan in plans)]),
            np.concatenate([none, *(plan.segments.end for plan in plans)]),
        )
        return cls(np.concatenate(offsets), segments)


def document_segments(
    tokens: npt.NDArray[np.generic],
    offsets: npt.NDArray[np.int64],
    sentence_starts: Mapping[int, Sequence[int]],
    is_word_start: npt.NDArray[np.bool_],
    *,
    length: int,
) -> Segments:
    """Return the pieces of a shard's documents that fit an MLM row of ``length`` positions.

    ``tokens`` is flat, document i is ``tokens[offsets[i]:offsets[i + 1]]``; ``sentence_starts`` holds token
    offsets of the documents where they are known.
    """
    capacity = length - SPECIAL_COST["mlm"]
    lengths = np.diff(offsets)
    short = np.flatnonzero(lengths <= capacity)
    items, starts, ends = [short], [np.zeros_like(short)], [lengths[short]]
    for item in np.flatnonzero(lengths > capacity).tolist():
        document = tokens[offsets[item] : offsets[item + 1]]
        pieces = cut_document(
            len(document),
            capacity,
            sentence_starts=sentence_starts.get(item),
            word_starts=word_starts(document, is_word_start),
        )
        items.append(np.full(len(pieces), item))
        starts.append(np.array([start for start, _ in pieces]))
        ends.append(np.array([end for _, end in pieces]))
    return Segments(_uint32(items), _uint32(starts), _uint32(ends))


def pair_segments(
    source_lengths: npt.NDArray[np.int64], target_lengths: npt.NDArray[np.int64], *, objective: str, length: int
) -> tuple[Segments, int]:
    """Return whole pairs (start 0, end = both lengths in tokens) that fit a row, and how many do not."""
    both = source_lengths + target_lengths
    kept = np.flatnonzero(both + SPECIAL_COST[objective] <= length)
    segments = Segments(_uint32([kept]), np.zeros(len(kept), dtype=np.uint32), _uint32([both[kept]]))
    return segments, len(both) - len(kept)


def pack_rows(segments: Segments, *, objective: str, length: int, generator: np.random.Generator) -> RowPlan:
    """Shuffle segments and pack them into rows of at most ``length`` positions."""
    order = generator.permutation(len(segments))
    costs = segments.costs(objective)
    if objective not in PAIR_OBJECTIVES:
        order = order[np.argsort(-costs[order], kind="stable")]
    row_of = best_fit(costs[order], length)
    rows = int(row_of.max()) + 1 if len(row_of) else 0
    offsets = np.zeros(rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(row_of, minlength=rows), out=offsets[1:])
    return RowPlan(offsets, segments.take(order[np.argsort(row_of, kind="stable")]))


def _uint32(parts: Sequence[npt.NDArray[np.int64]]) -> Uint32:
    return np.concatenate(parts).astype(np.uint32)
