import time
from collections import Counter, defaultdict

import numpy as np
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
ALL_OBJECTIVES = {
    "mlm": {"share": 0.3, "rows": "full_sentences"},
    "clm": {"share": 0.1},
    "rtd": {"share": 0.1},
    "nsp": {"share": 0.1},
    "sop": {"share": 0.1},
    "tlm": {"share": 0.2, "form": "xlm"},
    "contrastive": {"share": 0.1},
}


def columns(batch):
    return np.stack([batch.number, batch.leaf, batch.epoch, batch.variant, batch.row])


def drawn(plan, step):
    """Yield (objective, corpus, epoch, variant, row) of a batch."""
    batch = plan.rows(step)
    for leaf, epoch, variant, row in zip(*(column.tolist() for column in (batch.leaf, batch.epoch, batch.variant, batch.row)), strict=True):
        yield plan.leaves[leaf].objective, plan.leaves[leaf].corpus, epoch, variant, row


def objective_counts(plan, step):
    return Counter(objective for objective, *_ in drawn(plan, step))


@pytest.mark.parametrize("window", [None, 2])
def test_a_batch_depends_on_its_step_alone(make_recipe, make_index, window):
    recipe, index = make_recipe(PHASES, shuffle_window=window), make_index(blocks=5)
    forwards = DataPlan(recipe, index)
    in_order = [columns(forwards.rows(step)) for step in range(forwards.total_steps)]
    for step in (124, 3, 64, 65, 39, 40, 0):
        assert np.array_equal(columns(DataPlan(recipe, index).rows(step)), in_order[step])
    for step in np.random.default_rng(0).permutation(forwards.total_steps):
        assert np.array_equal(columns(forwards.rows(int(step))), in_order[step])


def test_the_seed_decides_the_order(make_recipe, make_index):
    first, second = (DataPlan(make_recipe(seed=seed), make_index()).rows(7) for seed in (1, 2))
    assert np.array_equal(first.leaf, second.leaf)
    assert not np.array_equal(first.row, second.row)


def test_steps_lie_in_phases(make_recipe, make_index):
    plan = DataPlan(make_recipe(PHASES), make_index())
    assert plan.total_steps == 125
    assert [plan.phase_at(step) for step in (0, 39, 40, 64, 65, 124)] == [(0, 0), (0, 39), (1, 0), (1, 24), (2, 0), (2, 59)]
    assert [plan.rows_per_step(phase) for phase in range(3)] == [20, 10, 20]
    for step in (-1, 125):
        with pytest.raises(UserError, match="0 to 124"):
            plan.rows(step)


def test_a_batch_carries_what_its_phase_says(make_recipe, make_index):
    plan = DataPlan(make_recipe(PHASES), make_index())
    batch = plan.rows(50)
    assert (batch.step, batch.phase, batch.sequence_length, batch.mask_rate, len(batch)) == (50, 1, 128, 0.3, 10)
    assert batch.number.tolist() == list(range(10))
    assert {(plan.leaves[leaf].objective, plan.leaves[leaf].corpus) for leaf in batch.leaf} == {("mlm", "en"), ("mlm", "de")}


def test_the_mask_rate_moves_with_the_step(make_recipe, make_index):
    plan = DataPlan(make_recipe([{"steps": 11, "mask_rate": {"start": 0.3, "end": 0.1}}]), make_index())
    assert [round(plan.rows(step).mask_rate, 6) for step in (0, 5, 10)] == [0.3, 0.2, 0.1]


def test_rows_are_in_order_of_leaf_then_row(make_recipe, make_index):
    plan = DataPlan(make_recipe(PHASES, shuffle_window=2), make_index(blocks=4))
    for step in range(plan.total_steps):
        batch = plan.rows(step)
        places = list(zip(batch.leaf.tolist(), batch.row.tolist(), strict=True))
        assert places == sorted(places)
    objectives = [leaf.objective for leaf in plan.leaves]
    assert objectives == sorted(objectives)


def test_a_layout_belongs_to_a_phase_and_a_leaf(make_recipe, make_index):
    phases = [{"objectives": ALL_OBJECTIVES}, {}]
    plan = DataPlan(make_recipe(phases), make_index())
    layouts = {leaf.objective: (plan.layout(0, number)) for number, leaf in enumerate(plan.leaves)}
    assert layouts == {
        "mlm": "full_sentences",
        "clm": "documents",
        "rtd": "documents",
        "nsp": "next_sentence",
        "sop": "sentence_order",
        "tlm": "pairs_xlm",
        "contrastive": "separate_pairs",
    }
    assert {plan.layout(1, number) for number, leaf in enumerate(plan.leaves) if leaf.objective == "mlm"} == {"documents"}


@pytest.mark.parametrize("window", [None, 1, 3])
def test_no_row_is_repeated_or_dropped_within_an_epoch(make_recipe, make_index, window):
    index = make_index(blocks=5)
    plan = DataPlan(make_recipe(PHASES, shuffle_window=window), index)
    seen, order = defaultdict(Counter), defaultdict(list)
    for step in range(plan.total_steps):
        length = plan.recipe.phases[plan.phase_at(step)[0]].sequence_length
        for objective, corpus, epoch, variant, row in drawn(plan, step):
            assert variant == epoch % 2
            seen[corpus, objective, length, epoch, variant][row] += 1
            order[corpus, objective, length].append(epoch)
    layouts = {"mlm": "documents", "tlm": "pairs", "contrastive": "separate_pairs"}
    for (corpus, objective, length, epoch, variant), rows in seen.items():
        total = index.plan(corpus, layouts[objective], length, variant).rows
        assert max(rows.values()) == 1
        assert max(rows) < total
        if epoch < max(order[corpus, objective, length]):
            # A finished epoch has had every row, across the edge between phases of one length too.
            assert len(rows) == total
    # Phases 0 and 2 share length 64, and their epochs go on without a gap.
    assert sorted(set(order["en_sw", "tlm", 64])) == list(range(max(order["en_sw", "tlm", 64]) + 1))
    assert max(order["de_sw", "contrastive", 64]) > 5


def test_a_phase_of_another_layout_has_epochs_of_its_own(make_recipe, make_index):
    def phase(rows):
        return {
            "steps": 5,
            "objectives": {"mlm": {"share": 1.0, "rows": rows}},
            "sampling": {"kind": "fixed", "weights": {"en": 1, "de": 0, "sw": 0}},
        }

    plan = DataPlan(make_recipe([phase("documents"), phase("full_sentences"), phase("documents")]), make_index())
    rows = [[row for step in range(first, first + 5) for *_, row in drawn(plan, step)] for first in (0, 5, 10)]
    assert not set(rows[0]) & set(rows[2])
    # Drawn from the beginning, in an order of its own.
    assert rows[0] != rows[1]
    assert set(rows[0]) & set(rows[1])


def test_objectives_that_share_a_plan_have_orders_of_their_own(make_recipe, make_index):
    objectives = {"mlm": {"share": 0.5}, "clm": {"share": 0.5}}
    plan = DataPlan(make_recipe([{"steps": 5, "objectives": objectives, "languages": ["en"]}]), make_index())
    rows = {name: [row for step in range(5) for objective, *_, row in drawn(plan, step) if objective == name] for name in objectives}
    assert len(rows["mlm"]) == len(rows["clm"]) == 50
    assert len(set(rows["mlm"]) & set(rows["clm"])) < 25


def test_every_epoch_has_its_own_order(make_recipe, make_index):
    plan = DataPlan(make_recipe([{"steps": 400}]), make_index(variants=1))
    order = defaultdict(dict)
    for step in range(plan.total_steps):
        for objective, corpus, epoch, _, row in drawn(plan, step):
            if (objective, corpus) == ("tlm", "en_de"):
                order[epoch].setdefault(step, set()).add(row)
    # The rows of an epoch in the order of their steps, a step's rows in any order.
    epochs = [[row for step in sorted(steps) for row in sorted(steps[step])] for _, steps in sorted(order.items())][:-1]
    assert len(epochs) > 20
    assert all(sorted(epoch) == list(range(41)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == len(epochs)
    # Nor does a row keep its place: the first ones of the epochs are many.
    assert len({epoch[0] for epoch in epochs}) > 8


def test_the_data_order_is_fixed_for_good(make_recipe, make_index):
    # A change here changes what every run that is to be resumed goes on with.
    golden = {
        None: ["contrastive en_de 14.0 5", "contrastive en_de 14.0 15", "contrastive en_de 14.0 36", "mlm en 0.0 279", "tlm en_de 8.0 29"],
        2: ["contrastive en_de 14.0 0", "contrastive en_de 14.0 31", "contrastive en_de 14.0 40", "mlm en 0.0 236", "tlm en_de 8.0 17"],
    }
    for window, expected in golden.items():
        plan = DataPlan(make_recipe(PHASES, shuffle_window=window), make_index(blocks=5))
        shown = [f"{objective} {corpus} {epoch}.{variant} {row}" for objective, corpus, epoch, variant, row in drawn(plan, 100)]
        assert shown[::4] == expected


def test_cumulative_shares_hold_within_a_row(make_recipe, make_index):
    plan = DataPlan(make_recipe(), make_index())
    counts = Counter()
    for step in range(plan.total_steps):
        counts.update(objective_counts(plan, step))
        rows = 20 * (step + 1)
        for objective, share in (("contrastive", 0.5), ("tlm", 0.3), ("mlm", 0.2)):
            assert abs(counts[objective] - share * rows) <= 1


def test_a_ramp_of_shares_is_followed_stair_by_stair(make_recipe, make_index):
    objectives = {"mlm": {"share": {"start": 1.0, "end": 0.0}}, "tlm": {"share": {"start": 0.0, "end": 1.0}}}
    plan = DataPlan(make_recipe([{"steps": 100, "ramp_plateaus": 10, "objectives": objectives}]), make_index())
    exact, found = 0.0, 0
    for step in range(100):
        exact += 20 * ((step // 10) * 10 + 4.5) / 99
        found += objective_counts(plan, step)["tlm"]
        assert abs(found - exact) <= 1.5
    assert [round(sum(objective_counts(plan, step)["tlm"] for step in range(first, first + 10)), -1) for first in (0, 90)] == [10, 190]


def test_the_bound_on_an_objective_holds_at_every_step(make_recipe, make_index):
    plan = DataPlan(make_recipe(PHASES), make_index())
    for step in range(plan.total_steps):
        phase, _ = plan.phase_at(step)
        found = objective_counts(plan, step)
        for objective in ("mlm", "tlm", "contrastive"):
            assert found[objective] <= plan.most_rows_per_step(phase, objective)
        assert found["tlm"] in (6, 7) or phase == 1
    assert [plan.most_rows_per_step(phase, "contrastive") for phase in range(3)] == [10, 0, 10]
    assert plan.most_rows_per_step(0, "clm") == 0
    longer = DataPlan(make_recipe([{"steps": 10**8}]), make_index())
    assert 10 <= longer.most_rows_per_step(0, "contrastive") <= 12
    moving = {"contrastive": {"share": {"start": 0.2, "end": 0.8}}, "mlm": {"share": {"start": 0.8, "end": 0.2}}}
    ramp = DataPlan(make_recipe([{"steps": 10**6, "objectives": moving, "ramp_plateaus": 10}]), make_index())
    found = max(objective_counts(ramp, step)["contrastive"] for step in range(900_000, 1_000_000, 9_973))
    assert found <= ramp.most_rows_per_step(0, "contrastive") <= 18


def test_planned_is_what_is_drawn(make_recipe, make_index):
    plan = DataPlan(make_recipe(PHASES), make_index())
    for start, stop in ((0, None), (10, 90), (40, 65), (5, 5)):
        rows, tokens = Counter(), Counter()
        for step in range(start, plan.total_steps if stop is None else stop):
            length = plan.rows(step).sequence_length
            for objective, corpus, *_ in drawn(plan, step):
                rows[objective, corpus] += 1
                tokens[objective, corpus] += length - 4  # as the index says
        for planned in plan.planned(start, stop):
            assert planned.rows == rows[planned.objective, planned.corpus]
            assert planned.tokens == tokens[planned.objective, planned.corpus]
    whole = {(planned.objective, planned.corpus): planned for planned in plan.planned()}
    assert whole["contrastive", "de_sw"].epochs == whole["contrastive", "de_sw"].rows


def test_phases_add_up_to_the_run(make_recipe, make_index):
    plan = DataPlan(make_recipe(PHASES), make_index())
    by_phase = plan.planned_by_phase()
    assert [sum(leaf.rows for leaf in phase) for phase in by_phase] == [800, 250, 1200]
    for number, whole in enumerate(plan.planned()):
        assert whole.rows == sum(phase[number].rows for phase in by_phase)
        assert whole.tokens == sum(phase[number].tokens for phase in by_phase)
        assert whole.epochs == pytest.approx(sum(phase[number].epochs for phase in by_phase))
    assert plan.epochs_at(0).max() == 0
    for step in (7, 40, 52, 125):
        assert plan.epochs_at(step).tolist() == pytest.approx([leaf.epochs for leaf in plan.planned(0, step)])


def test_languages_are_those_that_are_drawn(make_recipe, make_index):
    assert DataPlan(make_recipe(), make_index()).languages == ("de", "en", "sw")
    assert DataPlan(make_recipe([{"languages": ["en", "de"]}]), make_index()).languages == ("de", "en")


def test_a_language_that_is_named_but_never_drawn_is_an_error(make_recipe, make_index):
    recipe = make_recipe([{"languages": ["en", "de", "sw"], "sampling": {"kind": "fixed", "weights": {"en": 1, "de": 1, "sw": 0}}}])
    with pytest.raises(UserError, match=r"names sw but draws no row of it; drawn are: de, en"):
        DataPlan(recipe, make_index())


def test_a_length_the_shards_lack_is_an_error(make_recipe, make_index):
    with pytest.raises(UserError, match="length 256"):
        DataPlan(make_recipe([{"sequence_length": 256}]), make_index())


def test_one_row_a_step_is_a_batch_too(make_recipe, make_index):
    plan = DataPlan(make_recipe([{"steps": 50}], tokens_per_step=64), make_index())
    assert {len(plan.rows(step)) for step in range(50)} == {1}


objective_mixtures = st.sampled_from(
    [
        {"mlm": {"share": 1.0}},
        {"contrastive": {"share": 0.5}, "tlm": {"share": 0.3}, "mlm": {"share": 0.2}},
        {"mlm": {"share": {"start": 0.9, "end": 0.1}}, "tlm": {"share": {"start": 0.1, "end": 0.9}, "form": "xlm"}},
        ALL_OBJECTIVES,
    ]
)
samplings = st.sampled_from(
    [
        {"kind": "proportional"},
        {"kind": "temperature", "alpha": {"start": 0.7, "end": 0.3}, "unit": "sentences"},
        {"kind": "temperature", "alpha": 0.3, "unit": "rows"},
        {"kind": "fixed", "weights": {"en": 0.5, "de": 0.3, "sw": 0.2}},
    ]
)


@given(
    phases=st.lists(
        st.fixed_dictionaries(
            {
                "steps": st.integers(1, 30),
                "sequence_length": st.sampled_from([64, 128]),
                "objectives": objective_mixtures,
                "sampling": samplings,
                "ramp_plateaus": st.integers(2, 9),
            }
        ),
        min_size=1,
        max_size=4,
    ),
    tokens=st.integers(128, 3000),
    seed=st.integers(0, 9),
    blocks=st.integers(1, 6),
    window=st.one_of(st.none(), st.integers(1, 4)),
    warmup=st.one_of(st.none(), st.fixed_dictionaries({"start_tokens": st.just(128), "steps": st.integers(1, 90)})),
)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_epoch_is_whole_in_any_recipe(make_recipe, make_index, phases, tokens, seed, blocks, window, warmup):
    index = make_index(blocks=blocks)
    plan = DataPlan(make_recipe(phases, seed=seed, tokens_per_step=tokens, shuffle_window=window, batch_warmup=warmup), index)
    seen, totals = defaultdict(set), {}
    counts = np.zeros(len(plan.leaves), dtype=np.int64)
    for step in range(plan.total_steps):
        batch = plan.rows(step)
        assert len(batch) == plan.first_row(step + 1) - plan.first_row(step) <= plan.rows_per_step(batch.phase)
        counts += np.bincount(batch.leaf, minlength=len(counts))
        for leaf, epoch, variant, row in zip(
            batch.leaf.tolist(), batch.epoch.tolist(), batch.variant.tolist(), batch.row.tolist(), strict=True
        ):
            key = (leaf, plan.layout(batch.phase, leaf), batch.sequence_length, epoch)
            assert variant == epoch % 2
            assert row not in seen[key]
            seen[key].add(row)
            totals[key] = index.plan(plan.leaves[leaf].corpus, key[1], key[2], variant).rows
    assert counts.tolist() == [leaf.rows for leaf in plan.planned()]
    for (*key, epoch), rows in seen.items():
        if (*key, epoch + 1) in seen:
            assert rows == set(range(totals[(*key, epoch)]))


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

    assert seconds(10**7) < 2 * seconds(10)
