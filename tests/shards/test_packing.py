"""Best fit against a plain search, and how well real-looking lengths fill rows."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xlm.seeding import keyed_generator
from xlm.shards.packing import best_fit, fill_in_order


def plain_best_fit(costs, capacity):
    rooms, rows = [], []
    for cost in costs:
        fitting = [(room, row) for row, room in enumerate(rooms) if room >= cost]
        if not fitting:
            rooms.append(capacity)
            fitting = [(capacity, len(rooms) - 1)]
        least = min(room for room, _ in fitting)
        # Among equally full rows any may be taken; only the rooms left matter for what follows.
        row = next(row for room, row in fitting if room == least)
        rooms[row] -= cost
        rows.append(row)
    return rooms, rows


@settings(deadline=None)
@given(st.integers(1, 40).flatmap(lambda capacity: st.tuples(st.just(capacity), st.lists(st.integers(1, capacity), max_size=80))))
def test_rows_are_as_full_as_a_plain_search_makes_them(case):
    capacity, costs = case
    rows = best_fit(np.array(costs, dtype=np.int64), capacity)
    used = np.bincount(rows, weights=costs, minlength=0) if costs else np.zeros(0)
    rooms, _ = plain_best_fit(costs, capacity)
    assert sorted(capacity - used) == sorted(rooms)
    assert (used <= capacity).all()
    # Rows are numbered as they are opened, so none is empty.
    assert set(rows.tolist()) == set(range(len(rooms)))


@settings(deadline=None)
@given(
    st.integers(1, 40).flatmap(lambda capacity: st.tuples(st.just(capacity), st.lists(st.integers(1, capacity), max_size=400))),
    st.sampled_from([0.0, 0.004, 0.1]),
)
def test_filling_in_order_places_each_unit_once_and_no_row_is_too_full(case, empty_share):
    capacity, costs = case
    rows = fill_in_order(np.array(costs, dtype=np.int64), capacity, empty_share=empty_share)
    assert len(rows) == len(costs)
    used = np.bincount(rows, weights=costs, minlength=0) if costs else np.zeros(0)
    assert (used <= capacity).all()
    assert set(rows.tolist()) == set(range(len(used)))
    # The first unit that is left begins each row, so none waits for long.
    firsts = [rows.tolist().index(row) for row in range(len(used))]
    assert firsts == sorted(firsts)


def lengths_of_strings(count, length):
    """Log-normal lengths with a median of 12 tokens a side, as interface strings have, and 5 special pieces."""
    return np.minimum(keyed_generator("packing").lognormal(np.log(24), 0.8, size=count).astype(np.int64) + 5, length)


def fill_of(rows, costs, length):
    return costs.sum() / ((rows.max() + 1) * length)


@pytest.mark.parametrize(("length", "least_fill"), [(512, 0.995), (256, 0.995), (128, 0.993)])
def test_string_lengths_of_an_interface_fill_rows(length, least_fill):
    costs = lengths_of_strings(60_000, length)
    decreasing = -np.sort(-costs)
    assert fill_of(best_fit(decreasing, length), decreasing, length) >= 0.994
    assert fill_of(fill_in_order(costs, length, empty_share=0.004), costs, length) >= least_fill


def test_verses_fill_rows_though_none_is_short():
    """Lengths of verse pairs: three or four a row, none short enough to fill what three leave."""
    costs = np.clip(keyed_generator("verses").normal(76, 22, size=8000).astype(np.int64), 28, 200)
    assert fill_of(best_fit(costs, 256), costs, 256) < 0.97
    assert fill_of(fill_in_order(costs, 256, empty_share=0.004), costs, 256) >= 0.99


def test_filling_in_order_keeps_rows_alike():
    """The number of units a row spreads much less than in decreasing order, and rows at the end are like those before."""
    costs = lengths_of_strings(30_000, 256)
    rows = fill_in_order(costs, 256, empty_share=0.004)
    units = np.bincount(rows)
    assert units.std() < np.bincount(best_fit(-np.sort(-costs), 256)).std() / 1.5
    assert units.std() <= np.bincount(best_fit(costs, 256)).std() * 1.1
    tenths = [part.mean() for part in np.array_split(units, 10)]
    assert max(tenths) - min(tenths) < 0.1 * units.mean()
    # Long units are spread over rows as the order has them.
    longest = np.bincount(rows, weights=costs > 100)
    assert max(part.mean() for part in np.array_split(longest, 10)) < 1.3 * longest.mean()


def test_half_a_million_units_take_seconds():
    costs = keyed_generator("speed").integers(3, 60, size=500_000)
    for pack in (best_fit, lambda costs, capacity: fill_in_order(costs, capacity, empty_share=0.004)):
        started = time.process_time()
        pack(costs, 256)
        assert time.process_time() - started < 5.0
