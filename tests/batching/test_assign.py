"""Dealing, with made-up plans: only the numbers of rows by leaf and the lengths of rows enter."""

import time
from itertools import accumulate
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xlm.batching.assign import Assignment
from xlm.errors import UserError
from xlm.mixing.batch_rows import BatchRows

LEAVES = [("clm", "en"), ("contrastive", "en_de"), ("contrastive", "en_sw"), ("mlm", "de"), ("mlm", "en"), ("mlm", "sw"), ("tlm", "en_de")]


def make_plan(rows_by_leaf, length=32):
    """A plan of one phase whose every batch has these numbers of rows."""
    contrastive = sum(count for (objective, _), count in zip(LEAVES, rows_by_leaf, strict=True) if objective == "contrastive")
    return SimpleNamespace(
        leaves=[SimpleNamespace(objective=objective, corpus=corpus) for objective, corpus in LEAVES],
        recipe=SimpleNamespace(phases=[SimpleNamespace(name="only", sequence_length=length)]),
        rows_per_step=lambda phase: sum(rows_by_leaf),
        most_rows_per_step=lambda phase, objective: contrastive,
    )


def make_batch(rows_by_leaf, length=32, step=0):
    leaf = np.repeat(np.arange(len(rows_by_leaf)), rows_by_leaf)
    number, zeros = np.arange(len(leaf)), np.zeros(len(leaf), dtype=np.int64)
    return BatchRows(step, 0, length, 0.15, number, leaf, zeros, zeros, number * 3)


counts = st.lists(st.integers(0, 90), min_size=len(LEAVES), max_size=len(LEAVES)).filter(any)


def deal(assignment, batch, rank):
    """A rank's rows by micro-step."""
    rows, sizes = assignment.rows_of(batch, rank)
    assert sum(sizes) == len(rows)
    return [rows.take(np.arange(stop - size, stop)) for size, stop in zip(sizes, accumulate(sizes), strict=True)]


@given(counts, st.integers(1, 64), st.integers(1, 4000))
@settings(max_examples=300, deadline=None)
def test_every_row_is_dealt_once_evenly_and_pairs_first(rows_by_leaf, world_size, micro_batch_tokens):
    plan, batch = make_plan(rows_by_leaf), make_batch(rows_by_leaf)
    contrastive = rows_by_leaf[1] + rows_by_leaf[2]
    try:
        assignment = Assignment(plan, world_size=world_size, micro_batch_tokens=micro_batch_tokens)
    except UserError:
        assert max(1, micro_batch_tokens // 32) * world_size < contrastive
        return
    dealt = [deal(assignment, batch, rank) for rank in range(world_size)]
    assert sorted(row for of_rank in dealt for micro in of_rank for row in micro.number.tolist()) == list(range(len(batch)))
    objective_of = np.array([objective for objective, _ in LEAVES])
    whole = [np.concatenate([micro.number for micro in of_rank]) for of_rank in dealt]
    for objective in (None, *set(objective_of)):
        held = [len(numbers) if objective is None else int((objective_of[batch.leaf[numbers]] == objective).sum()) for numbers in whole]
        assert max(held) - min(held) <= 1, objective
    for numbers in whole:
        for objective in set(objective_of):
            own = numbers[objective_of[batch.leaf[numbers]] == objective]
            assert (np.diff(own) == 1).all()
    for of_rank in dealt:
        assert len(of_rank) == assignment.micro_steps
        assert all(len(micro) <= max(1, micro_batch_tokens // 32) for micro in of_rank)
        for micro in of_rank:
            assert (micro.row == micro.number * 3).all()
        for micro in of_rank[1:]:
            assert not (objective_of[micro.leaf] == "contrastive").any()


@given(counts, st.integers(1, 64), st.integers(32, 4000), st.integers(32, 4000))
@settings(max_examples=100, deadline=None)
def test_a_rank_has_the_same_rows_in_the_same_order_whatever_the_micro_batch(rows_by_leaf, world_size, one, other):
    rows_by_leaf[1] = rows_by_leaf[2] = 0
    if not any(rows_by_leaf):
        return
    plan, batch = make_plan(rows_by_leaf), make_batch(rows_by_leaf)
    for rank in {0, world_size // 2, world_size - 1}:
        assignments = [Assignment(plan, world_size=world_size, micro_batch_tokens=tokens) for tokens in (one, other)]
        first, second = (assignment.rows_of(batch, rank)[0].number.tolist() for assignment in assignments)
        assert first == second


def test_micro_steps_are_those_of_the_longest_phase():
    plan = make_plan([0, 0, 0, 20, 0, 0, 0])
    plan.recipe.phases = [SimpleNamespace(name="short", sequence_length=32), SimpleNamespace(name="long", sequence_length=64)]
    plan.rows_per_step = lambda phase: [20, 10][phase]
    # 20 rows of 32 or 10 of 64 a step, so 10 or 5 a rank; micro-batches of 5 rows or 2.
    assert Assignment(plan, world_size=2, micro_batch_tokens=160).micro_steps == 3
    assert Assignment(plan, world_size=1, micro_batch_tokens=640).micro_steps == 1


def test_a_group_that_does_not_fit_names_both_numbers_and_the_way_out():
    plan = make_plan([0, 12, 8, 0, 0, 0, 0])
    with pytest.raises(
        UserError, match=r"up to 20 contrastive rows in a step, but only 12 fit .*6 rows of 32 tokens on each of 2"
    ) as error:
        Assignment(plan, world_size=2, micro_batch_tokens=200)
    assert "raise training.micro_batch_tokens to 320 (now 200)" in str(error.value)
    Assignment(plan, world_size=2, micro_batch_tokens=320)


def test_dealing_a_large_batch_to_many_ranks_is_quick():
    rows_by_leaf = [3000, 5000, 1001, 9000, 7777, 3000, 4001]
    plan, batch = make_plan(rows_by_leaf), make_batch(rows_by_leaf)
    assignment = Assignment(plan, world_size=4096, micro_batch_tokens=128)

    def once():
        began = time.perf_counter()
        cuts = assignment.cuts(batch)
        return time.perf_counter() - began, cuts

    took, cuts = min((once() for _ in range(5)), key=lambda timed: timed[0])
    assert took < 0.02
    assert np.diff(cuts, axis=1).sum() == len(batch)
    assert np.ptp(np.diff(cuts, axis=1).sum(axis=0)) <= 1
