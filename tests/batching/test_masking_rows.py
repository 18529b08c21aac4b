import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from made_up_rows import seeds_of

from xlm.batching.masking_rows import RowGrid


def grid_of(rows):
    is_text = np.arange(10) > 2
    lengths = np.array([len(row) for row in rows])
    return RowGrid(np.array([piece for row in rows for piece in row], dtype=np.int64), lengths, seeds_of(len(rows)), is_text, 2)


rows = st.lists(st.lists(st.integers(0, 9), min_size=0, max_size=12), min_size=1, max_size=5)


@given(rows=rows, data=st.data(), dtype=st.sampled_from([np.uint32, np.uint64]))
def test_the_smallest_open_cells_are_chosen_whatever_is_equal(rows, data, dtype):
    grid = grid_of(rows)
    top = int(np.iinfo(dtype).max)
    values = st.sampled_from([0, 1, 2, top - 1, top])
    keys = np.array(data.draw(st.lists(values, min_size=len(rows) * grid.width, max_size=len(rows) * grid.width)), dtype=dtype)
    keys = keys.reshape(len(rows), grid.width)
    counts = np.array([data.draw(st.integers(0, sum(piece > 2 for piece in row))) for row in rows])
    expected = []
    for number, (row, count) in enumerate(zip(rows, counts, strict=True)):
        open_ = [place for place, piece in enumerate(row) if piece > 2]
        best = sorted(open_, key=lambda place, number=number: (keys[number, place], place))[:count]
        expected += [(number, place) for place in sorted(best)]
    chosen = grid.smallest(keys, counts)
    assert list(zip(chosen.rows.tolist(), chosen.places.tolist(), strict=True)) == expected
    starts = np.cumsum([0, *map(len, rows)])
    assert grid.positions(chosen).tolist() == [starts[row] + place for row, place in expected]


@given(rows=rows)
def test_tokens_are_found_in_their_rows_and_cells(rows):
    grid = grid_of(rows)
    expected = [number for number, row in enumerate(rows) for _ in row]
    assert grid.rows_of(np.arange(len(expected))).tolist() == expected
    laid_out = grid.to_grid(np.array([piece for row in rows for piece in row], dtype=np.int64))
    assert [line[: len(row)].tolist() for line, row in zip(laid_out, rows, strict=True)] == rows
    assert all(not line[len(row) :].any() for line, row in zip(laid_out, rows, strict=True))
    assert grid.maskable.tolist() == [sum(piece > 2 for piece in row) for row in rows]


@given(width=st.integers(1, 40), other=st.integers(1, 40))
def test_keys_of_a_row_do_not_depend_on_the_width_of_the_grid(width, other):
    narrow, wide = (grid_of([[5] * length]).keys() for length in sorted((width, other)))
    assert np.array_equal(narrow, wide[:, : narrow.shape[1]])
