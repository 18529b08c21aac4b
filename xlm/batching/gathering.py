"""Ranges of many columns, laid end to end: what lies scattered over mapped files, brought together in one array.

Numpy's cost is in its calls, so columns are memory views: slicing these and joining the slices costs a third of the same
with arrays. Ranges of a column that follow one another are a stretch. A column of few stretches gives a slice for each;
another is indexed once, as an array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlm.batching.packed_rows import Ids, bounds_of, ranges

SLICES = 4  # stretches of a column that are sliced one by one


def gathered(starts: Ids, lengths: Ids, edges: Ids, *columns: Sequence[memoryview]) -> list[NDArray[Any]]:
    """Return ranges [n] end to end: those from ``edges[i]`` to ``edges[i + 1]`` are of column i, at least one each.

    ``edges`` is [columns + 1]. The same ranges are taken of each sequence of columns, and make one array each, read-only.
    Columns of a sequence are views of arrays of one type; a single stretch of a single column is not copied.
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
    starts_at, ends_at = starts[cuts[:-1]], starts[cuts[:-1]] + bounds[1:] - bounds[:-1]
    plain = zip(*(column.tolist() for column in (many[column_of], starts_at, ends_at, bounds[:-1], bounds[1:])), strict=True)
    places = [indices[begin:end] if indexed else slice(start, stop) for indexed, start, stop, begin, end in plain]
    numbers = column_of.tolist()
    return [
        _joined(
            [
                of_kind[number][place] if isinstance(place, slice) else np.asarray(of_kind[number])[place].data
                for number, place in zip(numbers, places, strict=True)
            ]
        )
        for of_kind in columns
    ]


def _joined(parts: Sequence[memoryview]) -> NDArray[Any]:
    first = np.asarray(parts[0])
    return first if len(parts) == 1 else np.frombuffer(b"".join(parts), dtype=first.dtype)
