import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlm.mixing.row_cycle import RowCycles


def one_by_one(rows_per_variant, stop):
    places, epoch = [], 0
    while len(places) < stop:
        variant = epoch % len(rows_per_variant)
        places += [(epoch, variant, place, rows_per_variant[variant]) for place in range(rows_per_variant[variant])]
        epoch += 1
    return places[:stop]


@given(data=st.data(), variants=st.integers(1, 4), leaves=st.integers(1, 4))
def test_places_are_every_epoch_in_turn(data, variants, leaves):
    rows = data.draw(
        st.lists(st.lists(st.integers(0, 7), min_size=variants, max_size=variants).filter(any), min_size=leaves, max_size=leaves)
    )
    asked = data.draw(st.lists(st.tuples(st.integers(0, leaves - 1), st.integers(0, 60)), max_size=30))
    leaf, number = np.array(asked, dtype=np.int64).reshape(-1, 2).T
    places = RowCycles(rows).locate(leaf, number)
    found = np.stack([places.epoch, places.variant, places.place, places.size], axis=1)
    assert [tuple(row) for row in found.tolist()] == [one_by_one(rows[which], place + 1)[place] for which, place in asked]


def test_epochs_counts_variants_of_different_lengths():
    cycles = RowCycles([[3, 5], [0, 0]])
    assert cycles.epochs(np.array([8, 0])).tolist() == [2.0, 0.0]
    assert cycles.epochs(np.array([4, 0])).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("rows", [[], [[]], [[2, -1]]])
def test_rows_that_cannot_be_are_refused(rows):
    with pytest.raises(ValueError, match="a cycle needs"):
        RowCycles(rows)
