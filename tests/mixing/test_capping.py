"""Caps against brute force: every row is counted, and no leaf is ever above what it may give."""

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xlm.mixing.capping import CapEvent, EpochLimit, Exhausted, capped_plateaus
from xlm.mixing.tree_weights import Plateau


def limits_of(rows, epochs=1):
    return {leaf: EpochLimit(Fraction(of_leaf), None if epochs is None else Fraction(epochs)) for leaf, of_leaf in enumerate(rows)}


def walk(plateaus, limits, groups, plan):
    """Check every row of a capped plan: sums, monotone counts, caps, and silence after an event; return the last counts."""
    counts, row, epochs = np.zeros(len(groups), dtype=np.int64), 0, [Fraction(0)] * len(groups)
    silent = {}
    events = list(plan.events)
    assert events == sorted(events, key=lambda event: event.row)
    for number, plateau in enumerate(plateaus):
        silent = {leaf: cap for leaf, cap in silent.items() if limits[number].get(leaf) == cap}
        for _ in range(plateau.rows):
            while events and events[0].row == row:
                event = events.pop(0)
                silent[event.leaf] = limits[number][event.leaf]
            ((leaf, first, last),) = plan.tree.between(row, row + 1)
            assert (first, last) == (counts[leaf], counts[leaf] + 1)
            assert plateau.shares.get(groups[leaf])
            assert plateau.weights.get(leaf)
            assert leaf not in silent
            counts[leaf] += 1
            row += 1
            if leaf in limits[number]:
                limit = limits[number][leaf]
                epochs[leaf] += 1 / limit.epoch_rows
                assert limit.max_epochs is None or epochs[leaf] <= limit.max_epochs
    assert not events
    assert sum(piece.rows for piece in plan.plateaus) == row
    for number, plateau in enumerate(plateaus):
        assert sum(piece.rows for piece, origin in zip(plan.plateaus, plan.origins, strict=True) if origin == number) == plateau.rows
    return counts


def test_the_others_take_over_in_proportion():
    plateaus = [Plateau(100, {"mlm": 1}, {0: 1, 1: 1, 2: 2})]
    limits = [limits_of([10, 1000, 1000])]
    plan = capped_plateaus(plateaus, limits, ["mlm"] * 3)
    assert plan.events == (CapEvent(0, 40),)
    assert plan.origins == (0, 0)
    assert [piece.rows for piece in plan.plateaus] == [40, 60]
    assert walk(plateaus, limits, ["mlm"] * 3, plan).tolist() == [10, 30, 60]


def test_a_cap_leaves_the_other_objective_alone():
    groups = ["mlm", "mlm", "tlm", "tlm"]
    plateaus = [Plateau(400, {"mlm": 3, "tlm": 1}, {0: 1, 1: 1, 2: 1, 3: 1})]
    limits = [limits_of([60, 500, 500, 20], 2)]
    plan = capped_plateaus(plateaus, limits, groups)
    assert {event.leaf for event in plan.events} == {0, 3}
    assert walk(plateaus, limits, groups, plan).tolist() == [120, 180, 60, 40]


def test_a_leaf_that_just_reaches_its_cap_is_no_event():
    # UniMax spends the whole budget: all leaves stand at their caps with the last row.
    rows = [7, 13, 29, 51]
    plateaus = [Plateau(sum(rows), {"mlm": 1}, {leaf: Fraction(of_leaf, sum(rows)) for leaf, of_leaf in enumerate(rows)})]
    plan = capped_plateaus(plateaus, [limits_of(rows)], ["mlm"] * 4)
    assert plan.events == ()
    assert walk(plateaus, [limits_of(rows)], ["mlm"] * 4, plan).tolist() == rows


def test_epochs_count_from_the_beginning_of_the_run():
    # A row of the second phase is four times as long: 50 of 200 rows of the first are a quarter of an epoch.
    groups = ["mlm"] * 2
    plateaus = [Plateau(100, {"mlm": 1}, {0: 1, 1: 1}), Plateau(100, {"mlm": 1}, {0: 1, 1: 1}), Plateau(100, {"mlm": 1}, {0: 1, 1: 1})]
    limits = [limits_of([200, 4000], None), limits_of([50, 1000]), limits_of([50, 1000], 2)]
    plan = capped_plateaus(plateaus, limits, groups)
    counts = walk(plateaus, limits, groups, plan)
    # Three quarters of 50 rows, then 50 more of the 100 in which two epochs are allowed.
    assert counts[0] == 50 + 37 + 50
    assert [event.leaf for event in plan.events] == [0]
    assert plan.tree.count(0, 200) == 50 + 37


def test_running_out_names_where():
    plateaus = [Plateau(50, {"mlm": 1, "tlm": 1}, {0: 1, 1: 1, 2: 1}), Plateau(100, {"mlm": 1, "tlm": 1}, {0: 1, 1: 1, 2: 1})]
    limits = [limits_of([20, 20, 1000])] * 2
    with pytest.raises(Exhausted) as error:
        capped_plateaus(plateaus, limits, ["mlm", "mlm", "tlm"])
    assert (error.value.plateau, error.value.group) == (1, "mlm")
    assert abs(error.value.row - 80) <= 1
    assert abs(error.value.drawable - 15) <= 1


def test_thousands_of_caps_cost_seconds_and_hold():
    leaves = 600
    generator = np.random.default_rng(1)
    rows = [int(count) for count in 10 ** generator.uniform(0, 7, leaves)]
    weights = {leaf: int(count**0.3 * 10**9) for leaf, count in enumerate(rows)}
    plateaus = [Plateau(int(3.5 * sum(rows)), {"mlm": 1}, weights)]
    plan = capped_plateaus(plateaus, [limits_of(rows, 4)], ["mlm"] * leaves)
    last = plan.tree.counts(plan.tree.total_rows)
    assert len(plan.events) > 500
    assert all(count <= 4 * of_leaf for count, of_leaf in zip(last.tolist(), rows, strict=True))
    assert all(4 * rows[event.leaf] - last[event.leaf] <= 2 for event in plan.events)


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_no_leaf_is_ever_above_its_cap(data):
    leaves = data.draw(st.integers(1, 8))
    groups = data.draw(st.lists(st.sampled_from("ab"), min_size=leaves, max_size=leaves))
    plateaus, limits = [], []
    for _ in range(data.draw(st.integers(1, 3))):
        weights = {leaf: data.draw(st.fractions(Fraction(1, 50), 50)) for leaf in range(leaves)}
        plateau_rows = data.draw(st.integers(0, 150))
        cap = data.draw(st.sampled_from([None, Fraction(1), Fraction(5, 2), Fraction(4)]))
        of_phase = {leaf: EpochLimit(Fraction(data.draw(st.integers(1, 120)), data.draw(st.integers(1, 4))), cap) for leaf in range(leaves)}
        stairs = data.draw(st.integers(1, 2))
        for _ in range(stairs):
            plateaus.append(Plateau(plateau_rows, {label: data.draw(st.integers(1, 4)) for label in set(groups)}, weights))
            limits.append(of_phase)
    try:
        plan = capped_plateaus(plateaus, limits, groups)
    except Exhausted as error:
        found = error
        plan = None
    if plan is None:
        caps = [limits[found.plateau][leaf] for leaf in range(leaves) if groups[leaf] == found.group]
        assert found.drawable <= sum(floor(limit.max_epochs * limit.epoch_rows) for limit in caps)
        return
    walk(plateaus, limits, groups, plan)
