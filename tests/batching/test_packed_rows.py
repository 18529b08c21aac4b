import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xlm.batching.packed_rows import positions_within, ranges, starts_of, sums_by_row


@given(lengths=st.lists(st.integers(0, 20), max_size=12))
def test_positions_restart_in_every_sequence(lengths):
    array = np.array(lengths, dtype=np.int64)
    assert positions_within(array).tolist() == [place for length in lengths for place in range(length)]
    assert starts_of(array).tolist() == [sum(lengths[:number]) for number in range(len(lengths))]


@given(pairs=st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 9)), max_size=12))
def test_ranges_follow_each_other(pairs):
    starts, lengths = (np.array(column, dtype=np.int64) for column in zip(*pairs, strict=True)) if pairs else (np.empty(0, np.int64),) * 2
    assert ranges(starts, lengths).tolist() == [place for start, length in pairs for place in range(start, start + length)]


@given(rows=st.lists(st.lists(st.integers(0, 99), max_size=4), min_size=1, max_size=6))
def test_sums_by_row(rows):
    values = np.array([value for row in rows for value in row], dtype=np.int64)
    assert sums_by_row(values, np.array([len(row) for row in rows])).tolist() == [sum(row) for row in rows]
