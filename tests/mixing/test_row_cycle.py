import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlm.mixing.row_cycle import RowCycle


def one_by_one(rows_per_variant, stop):
    places, epoch = [], 0
    while len(places) < stop:
        variant = epoch % len(rows_per_variant)
        places += [(epoch, variant, rows_per_variant[variant], place) for place in range(rows_per_variant[variant])]
        epoch += 1
    return places[:stop]


@given(rows=st.lists(st.integers(0, 7), min_size=1, max_size=4).filter(any), bounds=st.tuples(st.integers(0, 60), st.integers(0, 60)))
def test_spans_are_every_epoch_in_turn(rows, bounds):
    first, stop = sorted(bounds)
    spans = list(RowCycle(rows).spans(first, stop))
    assert all(span.first < span.stop for span in spans)
    found = [(span.epoch, span.variant, span.rows, place) for span in spans for place in range(span.first, span.stop)]
    assert found == one_by_one(rows, stop)[first:]


def test_epochs_counts_variants_of_different_lengths():
    cycle = RowCycle([3, 5])
    assert cycle.epochs(8) == 2.0
    assert cycle.epochs(4) == 1.0


@pytest.mark.parametrize("rows", [[], [0, 0], [2, -1]])
def test_nothing_to_cycle_through_is_refused(rows):
    with pytest.raises(ValueError, match="without rows"):
        RowCycle(rows)
