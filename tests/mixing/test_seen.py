"""What was seen against the plan: counted here from the rows that the plan gives, step by step."""

from __future__ import annotations

from collections import Counter

import pytest

from xlm.mixing.data_plan import DataPlan
from xlm.mixing.seen import Seen, planned_rows, seen_table, unlike_plan

PHASES = [
    {"steps": 30},
    {"steps": 25, "objectives": {"mlm": {"share": {"start": 0.9, "end": 0.2}}, "clm": {"share": {"start": 0.1, "end": 0.8}}}},
]


@pytest.fixture
def plan(make_index, make_recipe):
    return DataPlan(make_recipe(PHASES), make_index())


def counted(plan, steps):
    """Count the rows of so many steps, and 60 tokens a row, all in the row's first language."""
    rows, tokens = Counter(), Counter()
    for step in range(steps):
        batch = plan.rows(step)
        for leaf in batch.leaf.tolist():
            cell = plan.recipe.phases[batch.phase].name, plan.leaves[leaf].objective
            rows[cell] += 1
            tokens[*cell, plan.leaves[leaf].languages[0]] += 60
    return Seen(tokens, rows)


@pytest.mark.parametrize("steps", [0, 1, 29, 30, 31, 55])
def test_rows_that_the_plan_gives_are_those_it_announced(plan, steps):
    seen = counted(plan, steps)
    assert planned_rows(plan, steps) == seen.rows
    assert unlike_plan(plan, steps, seen) is None


@pytest.mark.parametrize("odd", [-1, 1])
def test_a_row_lost_or_doubled_is_named_with_both_numbers(plan, odd):
    seen = counted(plan, 40)
    planned = seen.rows["phase1", "clm"]
    seen.rows["phase1", "clm"] += odd
    sentence = unlike_plan(plan, 40, seen)
    assert sentence is not None
    assert f"trained on {planned + odd} rows of clm in phase 'phase1', but the data plan has {planned};" in sentence
    seen.rows["phase1", "mlm"] -= odd
    assert "(1 more differences" in str(unlike_plan(plan, 40, seen))


def test_what_the_plan_does_not_have_at_all_is_noticed_too(plan):
    seen = counted(plan, 10)
    seen.rows["phase0", "rtd"] += 1
    assert "1 rows of rtd in phase 'phase0', but the data plan has 0;" in str(unlike_plan(plan, 10, seen))


def test_the_table_holds_both_and_adds_up(plan):
    seen = counted(plan, 55)
    table = seen_table(plan, 55, seen)
    assert {(phase, objective) for phase in table for objective in table[phase]} == set(seen.rows)
    for phase, objective in seen.rows:
        line = table[phase][objective]
        assert line["rows"] == line["planned_rows"] == seen.rows[phase, objective]
        assert line["tokens"] == sum(line["tokens_by_language"].values()) == 60 * line["rows"]
    assert seen.all_tokens == seen.tokens_by_language().total() == seen.tokens_by_objective().total() == 60 * 55 * 20
    assert seen.rows_by_objective().total() == 55 * 20
