"""Ranges of many columns, laid end to end: what lies scattered over mapped files, brought together in one array.

Numpy's cost is in its calls. Ranges of a column that follow one another are a stretch. A column of few stretches gives
a slice for each, which costs a fraction of a `take`; another gives all of them in one `take`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlm.batching.packed_rows import Ids, bounds_of, joined, ranges

Column = NDArray[Any]
SLICES = 4  # stretches of a column that are sliced one by one


def gathered(starts: Ids, lengths: Ids, edges: Ids, *columns: Sequence[Column]) -> list[Column]:
    """Return ranges [n] end to end: those from ``edges[i]`` to ``edges[i + 1]`` are of column i, at least one each.

    ``edges`` is [columns + 1]. The same ranges are taken of each sequence of columns, and make one array each.
    """
    begins = np.ones(starts.size + 1, dtype=np.bool_)  # whether a stretch begins with a range; behind the last one, too
    np.not_equal(starts[1:], starts[:-1] + lengths[:-1], out=begins[1:-1])
    begins[edges] = True
    so_far = begins.cumsum()
    many = so_far[edges[1:] - 1] - so_far[edges[:-1]] >= SLICES
    indices = starts  # unused where there are few
    if many.any():
        indices = ranges(starts, lengths)
        begins[:-1] &= ~many.repeat(edges[1:] - edges[:-1])
        begins[edges] = True
    cuts = begins.nonzero()[0]
    column_of = edges[:-1].searchsorted(cuts[:-1], side="right") - 1
    bounds = bounds_of(lengths)[cuts]
    plain = (column_of, many[column_of], starts[cuts[:-1]], bounds[:-1], bounds[1:])
    parts = list(zip(*(column.tolist() for column in plain), strict=True))
    return [
        joined(
            [
                of_kind[number].take(indices[begin:end]) if taken else of_kind[number][start : start + end - begin]
                for number, taken, start, begin, end in parts
            ]
        )
        for of_kind in columns
    ]
