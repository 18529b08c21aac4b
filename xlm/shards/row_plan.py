"""Row plans: which pieces of which items share a packed row of at most `length` positions.

A plan is built ahead and stored, one block (a file) for each token shard, so that any row can be looked up
by its number and no row needs two shards. What a row holds and what it costs are the rules of its layout
(`xlm.shards.layouts`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from xlm.shards.format import FileFacts, map_arrow, write_arrow
from xlm.shards.layouts import RULES, Layout

Uint32 = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Segments:
    """Pieces of items: ``item`` (inside the shard), ``start``, ``end`` are [segments], offsets in tokens."""

    item: Uint32
    start: Uint32
    end: Uint32

    def __len__(self) -> int:
        return len(self.item)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens of each, [segments]."""
        return self.end.astype(np.int64) - self.start

    def take(self, places: npt.NDArray[np.int64]) -> Segments:
        """Return the segments at these places, in this order."""
        return Segments(self.item[places], self.start[places], self.end[places])


@dataclass(frozen=True)
class RowPlan:
    """One block: the segments of row r are ``segments[offsets[r]:offsets[r + 1]]``; offsets are [rows + 1] int64."""

    offsets: npt.NDArray[np.int64]
    segments: Segments

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.offsets) - 1

    @property
    def text_tokens(self) -> int:
        """Tokens of text in all rows, special pieces not counted."""
        return int(self.segments.lengths.sum())

    def used(self, layout: Layout) -> int:
        """Return the positions that text and special pieces take in all rows."""
        rule, segments = RULES[layout], len(self.segments)
        units = self.rows if rule.segments_per_unit is None else segments // rule.segments_per_unit
        return self.text_tokens + rule.per_unit * units + rule.per_segment * segments

    def fill(self, layout: Layout, length: int) -> float:
        """Return the share of positions used, special pieces included; 1.0 for a plan without rows."""
        return self.used(layout) / (self.rows * length) if self.rows else 1.0

    def write(self, path: Path) -> FileFacts:
        """Write the plan as an Arrow IPC file: ``row: large_list<struct<item, start, end>>``."""
        segments = self.segments
        structs = pa.StructArray.from_arrays(
            [pa.array(segments.item), pa.array(segments.start), pa.array(segments.end)], names=["item", "start", "end"]
        )
        return write_arrow(path, pa.record_batch([pa.LargeListArray.from_arrays(self.offsets, structs)], names=["row"]))

    @classmethod
    def read(cls, path: Path) -> RowPlan:
        """Map a plan into memory; the arrays are views of the file."""
        rows = map_arrow(path).column(0)
        item, start, end = (field.to_numpy() for field in rows.values.flatten())
        return cls(rows.offsets.to_numpy(), Segments(item, start, end))
