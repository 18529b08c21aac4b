"""The texts of rows, wherever they lie in one array of pieces: what an objective arranges into sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlm.batching.packed_rows import Ids, starts_of

Pieces = NDArray[Any]  # ids in whatever integer type they are kept


@dataclass(frozen=True, slots=True)
class RowTexts:
    """The segments of R rows, S of them: pieces of documents (one side) or whole pairs (two sides)."""

    pieces: Pieces  # all texts and perhaps others, without special pieces: copied out of shards, or the one mapped shard itself
    starts: Ids  # [sides, S], where each text begins in ``pieces``
    lengths: Ids  # [sides, S]
    languages: Ids  # [sides, S], language ids
    segments_per_row: Ids  # [R]
    items: Ids  # [S], number of the document or pair inside its shard
    offsets: Ids  # [S], first token of the segment in its item

    @classmethod
    def of(cls, sides: Sequence[Sequence[Pieces]], languages: Sequence[int], segments_per_row: Sequence[int]) -> RowTexts:
        """Take arrays of ids, each one text of a side; every segment is an item of its own."""
        arrays = [array for side in sides for array in side]
        lengths = np.array([len(array) for array in arrays], dtype=np.int64)
        count = len(sides[0])
        shape = (len(sides), count)
        return cls(
            pieces=np.concatenate(arrays),
            starts=starts_of(lengths).reshape(shape),
            lengths=lengths.reshape(shape),
            languages=np.repeat(np.array(languages, dtype=np.int64), count).reshape(shape),
            segments_per_row=np.array(segments_per_row, dtype=np.int64),
            items=np.arange(count, dtype=np.int64),
            offsets=np.zeros(count, dtype=np.int64),
        )
