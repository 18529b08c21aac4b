"""Best fit against a plain search, and how well real-looking lengths fill rows."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlm.seeding import keyed_generator
from xlm.shards.packing import best_fit


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


@pytest.mark.parametrize(("length", "decreasing", "least_fill"), [(256, False, 0.985), (128, False, 0.975), (256, True, 0.994)])
def test_string_lengths_of_an_interface_fill_rows(length, decreasing, least_fill):
    """Log-normal lengths with a median of 12 tokens a side, as interface strings have."""
    generator = keyed_generator("packing")
    costs = np.minimum(generator.lognormal(np.log(24), 0.8, size=60_000).astype(np.int64) + 5, length)
    if decreasing:
        costs = -np.sort(-costs)
    rows = best_fit(costs, length)
    assert costs.sum() / ((rows.max() + 1) * length) >= least_fill


def test_shuffled_order_keeps_rows_alike():
    """The number of segments a row spreads much less than in decreasing order."""
    costs = np.minimum(keyed_generator("alike").lognormal(np.log(24), 0.8, size=30_000).astype(np.int64) + 5, 256)
    spread = [np.bincount(best_fit(order, 256)).std() for order in (costs, -np.sort(-costs))]
    assert spread[0] < spread[1] / 1.5


def test_half_a_million_segments_take_seconds():
    costs = keyed_generator("speed").integers(3, 60, size=500_000)
    started = time.process_time()
    best_fit(costs, 256)
    assert time.process_time() - started < 5.0
