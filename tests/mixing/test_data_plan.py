import time
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xlm.errors import UserError
from xlm.mixing.data_plan import DataPlan

PHASES = [
    {"steps": 40},
    {"steps": 25, "sequence_length": 128, "languages": ["en", "de"], "mask_rate": 0.3, "objectives": {"mlm": {"share": 1.0}}},
    {"steps": 60, "sampling": {"kind": "temperature", "alpha": 0.9}},
]


def test_a_batch_depends_on_its_step_alone(make_recipe, make_index):
    forwards = DataPlan(make_recipe(PHASES), make_index())
    in_order = [forwards.rows(step) for step in range(forwards.total_steps)]
    for step in (124, 3, 64, 65, 39, 40, 0):
        assert DataPlan(make_recipe(PHASES), make_index()).rows(step) == in_order[step]


def test_the_seed_decides_the_order(make_recipe, make_index):
    first, second = (DataPlan(make_recipe(seed=seed), make_index()).rows(7) for seed in (1, 2))
    assert Counter((ref.objective, ref.corpus) for ref in first) == Counter((ref.objective, ref.corpus) for ref in second)
    assert first != second


def test_steps_lie_in_phases(make_recipe, make_index):
    plan = DataPlan(make_recipe(PHASES), make_index())
    assert plan.total_steps == 125
    assert [plan.phase_at(step) for step in (0, 39, 40, 64, 65, 124)] == [(0, 0), (0, 39), (1, 0), (1, 24), (2, 0), (2, 59)]
    assert [plan.rows_per_step(phase) for phase in range(3)] == [20, 10, 20]
    for step in (-1, 125):
        with pytest.raises(UserError, match="0 to 124"):
            plan.rows(step)


def test_rows_carry_what_their_phase_says(make_recipe, make_index):
    plan = DataPlan(make_recipe(PHASES), make_index())
    for ref in plan.rows(50):
        assert (ref.phase, ref.sequence_length, ref.mask_rate, ref.objective, ref.loss_weight) == (1, 128, 0.3, "mlm", 1.0)
        assert ref.corpus in ("en", "de")
    assert {ref.loss_weight for ref in plan.rows(0) if ref.objective == "tlm"} == {0.5}


def test_no_row_is_repeated_or_dropped_within_an_epoch(make_recipe, make_index):
    index = make_index()
    plan = DataPlan(make_recipe(PHASES), index)
    seen = defaultdict(Counter)
    order = defaultdict(list)
    for step in range(plan.total_steps):
        for ref in plan.rows(step):
            key = (ref.corpus, ref.objective, ref.sequence_length)
            assert ref.variant == ref.epoch % 2
            seen[(*key, ref.epoch, ref.variant)][ref.row] += 1
            order[key].append(ref.epoch)
    for (corpus, objective, length, epoch, variant), rows in seen.items():
        total = index.rows(corpus, objective, length, variant)
        assert max(rows.values()) == 1
        assert max(rows) < total
        if epoch < max(order[corpus, objective, length]):
            # A finished epoch has had every row, across the edge between phases of one length too.
            assert len(rows) == total
    # Phases 0 and 2 share length 64, and their epochs go on without a gap.
    assert sorted(set(order["en_sw", "tlm", 64])) == list(range(max(order["en_sw", "tlm", 64]) + 1))
    assert max(order["de_sw", "contrastive", 64]) > 5


def test_every_epoch_has_its_own_order(make_recipe, make_index):
    plan = DataPlan(make_recipe([{"steps": 400}]), make_index(variants=1))
    order = defaultdict(dict)
    for step in range(plan.total_steps):
        for ref in plan.rows(step):
            if (ref.objective, ref.corpus) == ("tlm", "en_de"):
                order[ref.epoch].setdefault(step, set()).add(ref.row)
    # The rows of an epoch in the order of their steps, a step's rows in any order.
    epochs = [[row for step in sorted(steps) for row in sorted(steps[step])] for _, steps in sorted(order.items())][:-1]
    assert len(epochs) > 20
    assert all(sorted(epoch) == list(range(41)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == len(epochs)
    # Nor does a row keep its place: the first ones of the epochs are many.
    assert len({epoch[0] for epoch in epochs}) > 8


def test_the_data_order_is_fixed_for_good(make_recipe, make_index):
    # A change here changes what every run that is to be resumed goes on with.
    plan = DataPlan(make_recipe(PHASES), make_index())
    shown = [f"{ref.objective} {ref.corpus} {ref.epoch}.{ref.variant} {ref.row}" for ref in plan.rows(100)[:6]]
    assert shown == [
        "contrastive en_de 14.0 38",
        "tlm en_de 8.0 4",
        "tlm en_de 8.0 3",
        "tlm en_de 8.0 31",
        "mlm en 0.0 75",
        "tlm en_sw 14.0 0",
    ]


def test_cumulative_shares_hold_within_a_row(make_recipe, make_index):
    plan = DataPlan(make_recipe(), make_index())
    counts = Counter()
    for step in range(plan.total_steps):
        counts.update(ref.objective for ref in plan.rows(step))
        rows = 20 * (step + 1)
        for objective, share in (("contrastive", 0.5), ("tlm", 0.3), ("mlm", 0.2)):
            assert abs(counts[objective] - share * rows) <= 1


def test_the_bound_on_an_objective_holds_at_every_step(make_recipe, make_index):
    plan = DataPlan(make_recipe(PHASES), make_index())
    for step in range(plan.total_steps):
        phase, _ = plan.phase_at(step)
        found = Counter(ref.objective for ref in plan.rows(step))
        for objective in ("mlm", "tlm", "contrastive"):
            assert found[objective] <= plan.most_rows_per_step(phase, objective)
        assert found["tlm"] in (6, 7) or phase == 1
    assert [plan.most_rows_per_step(phase, "contrastive") for phase in range(3)] == [10, 0, 10]
    longer = DataPlan(make_recipe([{"steps": 10**8}]), make_index())
    assert 10 <= longer.most_rows_per_step(0, "contrastive") <= 12


def test_the_order_inside_a_batch_is_mixed(make_recipe, make_index):
    plan = DataPlan(make_recipe(), make_index())
    changes = [sum(a.objective != b.objective for a, b in pairwise(rows)) for rows in map(plan.rows, range(20))]
    assert min(changes) > 2


def test_planned_is_what_is_drawn(make_recipe, make_index):
    index = make_index()
    plan = DataPlan(make_recipe(PHASES), index)
    for start, stop in ((0, None), (10, 90), (40, 65), (5, 5)):
        drawn = Counter()
        tokens = Counter()
        for step in range(start, plan.total_steps if stop is None else stop):
            for ref in plan.rows(step):
                drawn[ref.objective, ref.corpus] += 1
                tokens[ref.objective, ref.corpus] += ref.sequence_length
        for planned in plan.planned(start, stop):
            assert planned.rows == drawn[planned.objective, planned.corpus]
            assert planned.tokens == tokens[planned.objective, planned.corpus]
    whole = {(planned.objective, planned.corpus): planned for planned in plan.planned()}
    assert whole["contrastive", "de_sw"].epochs == whole["contrastive", "de_sw"].rows


def test_languages_are_those_that_are_drawn(make_recipe, make_index):
    assert DataPlan(make_recipe(), make_index()).languages == ("de", "en", "sw")
    assert DataPlan(make_recipe([{"languages": ["en", "de"]}]), make_index()).languages == ("de", "en")


def test_a_language_that_is_named_but_never_drawn_is_an_error(make_recipe, make_index):
    recipe = make_recipe([{"languages": ["en", "de", "sw"], "sampling": {"kind": "fixed", "weights": {"en": 1, "de": 1, "sw": 0}}}])
    with pytest.raises(UserError, match=r"names sw but draws no row of it; drawn are: de, en"):
        DataPlan(recipe, make_index())


def test_a_fixed_weight_on_a_corpus_without_rows_is_an_error(make_recipe, make_index):
    index = make_index(rows={"en": 301, "de": 57, "sw": 7, "en_de": 41, "en_sw": 5, "de_sw": 0})
    recipe = make_recipe([{"sampling": {"kind": "fixed", "weights": {"en": 1, "de": 1, "sw": 1}}}])
    with pytest.raises(UserError, match=r"'de_sw'.*none fits at sequence_length 64"):
        DataPlan(recipe, index)


def test_a_length_the_shards_lack_is_an_error(make_recipe, make_index):
    with pytest.raises(UserError, match="length 256"):
        DataPlan(make_recipe([{"sequence_length": 256}]), make_index())


@given(steps=st.lists(st.integers(1, 30), min_size=1, max_size=4), data=st.data(), tokens=st.integers(128, 3000), seed=st.integers(0, 9))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_epoch_is_whole_in_any_recipe(make_recipe, make_index, steps, data, tokens, seed):
    index = make_index()
    phases = [{"steps": count, "sequence_length": data.draw(st.sampled_from([64, 128]))} for count in steps]
    plan = DataPlan(make_recipe(phases, seed=seed, tokens_per_step=tokens), index)
    seen = defaultdict(set)
    for step in range(plan.total_steps):
        refs = plan.rows(step)
        assert len(refs) == plan.rows_per_step(refs[0].phase)
        for ref in refs:
            rows = seen[ref.corpus, ref.objective, ref.sequence_length, ref.epoch]
            assert ref.row not in rows
            rows.add(ref.row)
    for (corpus, objective, length, epoch), rows in seen.items():
        if (corpus, objective, length, epoch + 1) in seen:
            assert rows == set(range(index.rows(corpus, objective, length, epoch % 2)))


def test_any_step_costs_the_same(make_recipe, make_index):
    plan = DataPlan(make_recipe([{"steps": 10**8}]), make_index())

    def seconds(first):
        best = float("inf")
        for _ in range(5):
            began = time.perf_counter()
            for step in range(first, first + 20):
                plan.rows(step)
            best = min(best, time.perf_counter() - began)
        return best

    assert seconds(10**7) < 5 * seconds(10)
