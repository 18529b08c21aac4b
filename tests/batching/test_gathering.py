import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xlm.batching.gathering import gathered

RANGES = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)), min_size=1, max_size=8)


@given(of_columns=st.lists(RANGES, min_size=1, max_size=5))
def test_ranges_of_columns_lie_end_to_end(of_columns):
    columns = [np.arange(100 * number, 100 * number + 30, dtype=np.uint32) for number in range(len(of_columns))]
    starts, lengths = np.array([one for of_column in of_columns for one in of_column]).T
    edges = np.cumsum([0, *map(len, of_columns)])
    expected = [
        100 * number + place
        for number, of_column in enumerate(of_columns)
        for start, length in of_column
        for place in range(start, start + length)
    ]
    negatives = [-column.astype(np.int64) for column in columns]
    found, negative = gathered(starts, lengths, edges, *([memoryview(column) for column in kind] for kind in (columns, negatives)))
    assert found.tolist() == expected
    assert found.dtype == np.uint32
    assert (-negative).tolist() == expected


def test_neighbours_of_one_column_are_not_copied():
    column = np.arange(50)
    (found,) = gathered(np.array([3, 5, 9]), np.array([2, 4, 1]), np.array([0, 3]), [memoryview(column)])
    assert found.tolist() == [3, 4, 5, 6, 7, 8, 9]
    assert np.shares_memory(found, column)
