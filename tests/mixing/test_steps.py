from collections import defaultdict
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xlm.mixing.data_plan import DataPlan
from xlm.mixing.steps import Steps, floor_sum


@given(st.integers(0, 60), st.integers(1, 50), st.integers(0, 200), st.integers(0, 200))
def test_a_floor_sum_is_the_sum(terms, divisor, slope, offset):
    assert floor_sum(terms, divisor, slope, offset) == sum((slope * term + offset) // divisor for term in range(terms))


def test_steps_and_rows_of_phases(make_recipe):
    steps = Steps.of(make_recipe([{"steps": 40}, {"steps": 25, "sequence_length": 128}]))
    assert (steps.first_steps, steps.first_rows) == ((0, 40, 65), (0, 800, 1050))
    assert [steps.most_rows(phase) for phase in (0, 1)] == [20, 10]
    assert [steps.at_row(row) for row in (0, 19, 20, 799, 800, 1049, 1050)] == [(0, 0), (0, 0), (0, 1), (0, 39), (1, 40), (1, 64), (1, 65)]


GROWING = st.fixed_dictionaries({"start_tokens": st.integers(128, 1280), "steps": st.integers(1, 90)})
PHASES = st.lists(
    st.fixed_dictionaries({"steps": st.integers(1, 40), "sequence_length": st.sampled_from([64, 96, 128])}), min_size=1, max_size=3
)


@given(PHASES, GROWING, st.integers(1280, 3000))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_grow_linearly_and_add_up(make_recipe, phases, warmup, tokens):
    steps = Steps.of(make_recipe(phases, batch_warmup=warmup, tokens_per_step=tokens))
    lengths = [phase["sequence_length"] for phase in phases for _ in range(phase["steps"])]
    rows = []
    for step, length in enumerate(lengths):
        grown = min(Fraction(step, warmup["steps"]), 1)
        rows.append((warmup["start_tokens"] + (tokens - warmup["start_tokens"]) * grown) // length)
        assert steps.rows_of(step) == rows[-1] >= 1
    assert [steps.first_row(step) for step in range(len(rows) + 1)] == [sum(rows[:step]) for step in range(len(rows) + 1)]
    for phase, (first, stop) in enumerate(pairwise(steps.first_steps)):
        assert steps.most_rows(phase) == max(rows[first:stop])
        assert rows[first:stop] == sorted(rows[first:stop])
        assert steps.first_rows[phase] == sum(rows[:first])
    for step in range(len(rows)):
        before = sum(rows[:step])
        for row in {before, before + rows[step] - 1}:
            assert steps.at_row(row) == (steps.phase_of(step), step)
        assert steps.beginning_at(before)[1] == step
        assert steps.beginning_at(before + 1)[1] == step + (rows[step] > 0)


@pytest.mark.parametrize("window", [None, 2])
def test_growing_batches_draw_the_rows_of_equal_ones_in_the_same_order(make_recipe, make_index, window):
    index = make_index(blocks=3)
    grown = DataPlan(make_recipe([{"steps": 60}], shuffle_window=window, batch_warmup={"start_tokens": 128, "steps": 40}), index)
    equal = DataPlan(make_recipe([{"steps": 60}], shuffle_window=window), index)
    assert len(grown.rows(0)) == 2
    drawn, whole = (drawn_by_leaf(plan) for plan in (grown, equal))
    assert sum(map(len, drawn.values())) == grown.first_row(60) < equal.first_row(60) == 1200
    for leaf, rows in drawn.items():
        assert whole[leaf][: len(rows)] == rows


def drawn_by_leaf(plan):
    """By leaf what it gives, step after step; a batch has a leaf's rows in order of row, so those of a step are compared as a set."""
    found = defaultdict(list)
    for step in range(plan.total_steps):
        before, after = (plan.tree.counts(plan.first_row(edge)) for edge in (step, step + 1))
        batch = plan.rows(step)
        for leaf in set(batch.leaf.tolist()):
            mine = batch.leaf == leaf
            numbers = range(before[leaf], after[leaf])
            places, rows = plan.locate(batch.phase, np.full(len(numbers), leaf), np.array(numbers))
            assert sorted(zip(batch.epoch[mine], batch.row[mine], strict=True)) == sorted(zip(places.epoch, rows, strict=True))
            found[leaf] += list(zip(places.epoch.tolist(), rows.tolist(), strict=True))
    return found


def test_groups_of_negatives_are_bounded_by_the_last_step(make_recipe, make_index):
    plan = DataPlan(make_recipe([{"steps": 30}], batch_warmup={"start_tokens": 128, "steps": 60}), make_index())
    contrastive = [sum(plan.leaves[leaf].objective == "contrastive" for leaf in plan.rows(step).leaf) for step in range(30)]
    assert max(contrastive) == plan.most_rows_per_step(0, "contrastive") < 8
