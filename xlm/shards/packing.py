"""Packing segments into rows: best fit, in a given order.

Best fit puts each segment into the fullest row that still has room for it. In decreasing order it is the
classical offline heuristic (Johnson 1974) and fills rows best. In random order it is nearly as good when
segments are short against a row, and rows stay alike: decreasing order would put the longest pairs
together in the first rows and only the shortest strings in the last, so that a contrastive row's
negatives could be told apart by length alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def best_fit(costs: npt.NDArray[np.int64], capacity: int) -> npt.NDArray[np.int64]:
    """Return the row [segments] of each segment, taken in the order of ``costs`` [segments], each in 1..capacity.

    Rows are numbered in the order they are opened. Time is O(segments x capacity / word size): the rooms
    left that some row has are bits of one integer, and the smallest that suffices is its lowest set bit
    from ``cost`` up.
    """
    rows_with_room: list[list[int]] = [[] for _ in range(capacity + 1)]
    rooms = 0
    rows = 0
    placed: list[int] = []
    for cost in costs.tolist():
        fitting = rooms >> cost
        if fitting:
            room = cost + (fitting & -fitting).bit_length() - 1
            candidates = rows_with_room[room]
            row = candidates.pop()
            if not candidates:
                rooms ^= 1 << room
        else:
            room, row = capacity, rows
            rows += 1
        left = room - cost
        if left:
            rows_with_room[left].append(row)
            rooms |= 1 << left
        placed.append(row)
    return np.array(placed, dtype=np.int64)
