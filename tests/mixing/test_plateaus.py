from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xlm.errors import UserError
from xlm.mixing.data_plan import DataPlan

MLM = {"mlm": {"share": 1.0}}


def temperature(alpha=0.5, **options):
    return {"kind": "temperature", "alpha": alpha, **options}


def unimax(epochs):
    return {"kind": "unimax", "max_epochs": epochs}


def rows_of(leaves):
    return {(leaf.objective, leaf.corpus): leaf.rows for leaf in leaves}


def corpora_of(leaves):
    return {leaf.corpus: leaf.rows for leaf in leaves}


def warmed_up(tokens, warmup, step):
    """Tokens of a step, as a fraction."""
    if warmup is None or step >= warmup.steps:
        return tokens
    return warmup.start_tokens + Fraction((tokens - warmup.start_tokens) * step, warmup.steps)


@given(
    phases=st.lists(
        st.fixed_dictionaries(
            {
                "steps": st.integers(1, 40),
                "sequence_length": st.sampled_from([64, 128]),
                "sampling": st.sampled_from(
                    [
                        temperature(max_epochs=0.5),
                        temperature(0.0, max_epochs=3),
                        temperature({"start": 0.0, "end": 1.0}, max_epochs=1.5),
                        temperature(),
                    ]
                ),
                "objectives": st.sampled_from(
                    [MLM, {"mlm": {"share": {"start": 0.2, "end": 0.8}}, "tlm": {"share": {"start": 0.8, "end": 0.2}}}]
                ),
                "ramp_plateaus": st.integers(2, 6),
            }
        ),
        min_size=1,
        max_size=3,
    ),
    tokens=st.integers(128, 1500),
    warmup=st.one_of(st.none(), st.fixed_dictionaries({"start_tokens": st.just(128), "steps": st.integers(1, 60)})),
    variants=st.sampled_from(
        [{}, {"sw": (2, 20), "de_sw": (0, 9), "en_sw": (31, 0)}, {"en": (301, 2), "sw": (0, 1), "en_de": (90, 5), "de_sw": (0, 0)}]
    ),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_cap_is_never_passed_and_others_take_over(make_recipe, make_index, make_variants, phases, tokens, warmup, variants):
    recipe, index = make_recipe(phases, tokens_per_step=tokens, batch_warmup=warmup), make_variants(make_index(), **variants)
    try:
        plan = DataPlan(recipe, index)
    except UserError as error:
        assert "runs out of" in str(error)  # noqa: PT017
        return
    counts = np.zeros(len(plan.leaves), dtype=np.int64)
    epochs = np.zeros(len(plan.leaves))
    capped = {}
    for step in range(plan.total_steps):
        batch = plan.rows(step)
        assert len(batch) == warmed_up(tokens, recipe.training.batch_warmup, step) // batch.sequence_length
        drawn = np.bincount(batch.leaf, minlength=len(counts))
        counts += drawn
        sampling = recipe.phases[batch.phase].sampling
        for leaf, name in enumerate(plan.leaves):
            if not drawn[leaf]:
                continue
            key = (name.corpus, plan.layout(batch.phase, leaf), batch.sequence_length)
            epochs[leaf] += drawn[leaf] * 2 / sum(index.plan(*key, variant).rows for variant in (0, 1))
            if sampling.max_epochs is not None:
                assert epochs[leaf] <= sampling.max_epochs + 1e-9
    for event in plan.cap_events:
        capped.setdefault((event.leaf, event.phase), event.step)
        assert plan.recipe.phases[event.phase].sampling.max_epochs is not None
    assert epochs == pytest.approx(plan.epochs_at(plan.total_steps))
    # Announced is where it binds: no row of the leaf in that step of the phase or a later one.
    for (leaf, phase), step in capped.items():
        assert plan.phase_at(step)[0] == phase
        for later in range(step, plan.total_steps):
            batch = plan.rows(later)
            if batch.phase == phase:
                assert leaf not in batch.leaf


def test_a_capped_language_is_announced_and_the_others_go_on_in_proportion(make_recipe, make_index):
    # 7 rows of Swahili at most twice, with a third of the rows its turn: after about 42 rows, in the third step.
    sampling = {"kind": "fixed", "weights": {"en": 2, "de": 1, "sw": 1.5}, "max_epochs": 2}
    plan = DataPlan(make_recipe([{"steps": 10, "sampling": sampling, "objectives": MLM}]), make_index(variants=1))
    (event,) = plan.cap_events
    assert (plan.leaves[event.leaf].corpus, event.phase) == ("sw", 0)
    rows = corpora_of(plan.planned())
    assert rows["sw"] in (13, 14)
    assert event.step == 14 * 3 // 20 + 1
    assert event.leaf in plan.rows(event.step - 1).leaf
    assert event.leaf not in plan.rows(event.step).leaf
    assert rows["en"] == pytest.approx(2 * rows["de"], abs=3)
    assert sum(rows.values()) == 200


def test_caps_count_from_the_beginning_of_the_run(make_recipe, make_index):
    phases = [
        {"steps": 3, "sampling": {"kind": "fixed", "weights": {"en": 1, "de": 1, "sw": 0}}, "objectives": MLM},
        {"steps": 10, "sampling": {"kind": "fixed", "weights": {"en": 1, "de": 1, "sw": 0}, "max_epochs": 1}, "objectives": MLM},
    ]
    plan = DataPlan(make_recipe(phases), make_index(variants=1))
    first, second = (corpora_of(leaves) for leaves in plan.planned_by_phase())
    assert first == {"de": 30, "en": 30, "sw": 0}
    assert first["de"] + second["de"] in (56, 57)
    assert [plan.leaves[event.leaf].corpus for event in plan.cap_events] == ["de"]
    # A phase without a cap goes on with what is used up.
    plan = DataPlan(make_recipe([*phases, phases[0]]), make_index(variants=1))
    assert corpora_of(plan.planned_by_phase()[2]) == {"de": 30, "en": 30, "sw": 0}


def test_a_language_that_was_used_up_before_its_phase_is_no_mistake(make_recipe, make_index):
    phases = [
        {"steps": 10, "languages": ["de"], "sampling": temperature(), "objectives": MLM},
        {"steps": 3, "languages": ["de", "en"], "sampling": temperature(max_epochs=1), "objectives": MLM},
    ]
    plan = DataPlan(make_recipe(phases), make_index())
    assert corpora_of(plan.planned_by_phase()[1]) == {"de": 0, "en": 60}


@pytest.mark.parametrize(("second", "third", "announced"), [(2, None, (1, 4)), (4, 4, (2, 8)), (None, 2, (2, 6))])
def test_a_cap_that_binds_in_a_phases_last_step_is_told_of_the_next_whole_step_that_it_holds_for(
    make_recipe, make_index, second, third, announced
):
    # 14 rows of Swahili in the 20 x 4 rows of the first phase: the cap binds in its last step.
    fixed = {"kind": "fixed", "weights": {"en": 1, "de": 1, "sw": 0.44}}
    phases = [
        {"steps": steps, "sampling": {**fixed, "max_epochs": cap}, "objectives": MLM} for steps, cap in ((4, 2), (2, second), (4, third))
    ]
    plan = DataPlan(make_recipe(phases), make_index(variants=1))
    (sw,) = (leaf for leaf, each in enumerate(plan.leaves) if each.corpus == "sw")
    event = next(event for event in plan.cap_events if event.leaf == sw)
    assert plan.tree.count(sw, 80) == 14
    assert (event.phase, event.step) == announced


def test_a_cap_counts_the_mean_of_variants_that_differ(make_recipe, make_index, make_variants):
    # Two variants of 2 and 20 rows: 44 rows are four epochs.
    index = make_variants(make_index(), sw=(2, 20))
    for sampling in (temperature(0.0, max_epochs=4), unimax(4)):
        plan = DataPlan(make_recipe([{"steps": 20, "sampling": sampling, "objectives": MLM}]), index)
        (sw,) = (leaf for leaf in plan.planned() if leaf.corpus == "sw")
        assert 43 <= sw.rows <= 44
        assert sw.epochs == pytest.approx(4, abs=0.1)


def test_running_out_is_told_with_the_step_and_what_there_is(make_recipe, make_index):
    recipe = make_recipe([{"steps": 100, "sampling": temperature(max_epochs=2), "objectives": MLM}])
    with pytest.raises(UserError) as found:
        DataPlan(recipe, make_index(variants=1))
    message = str(found.value)
    assert "phase 'phase0' runs out of mlm rows at step 36 of 100: max_epochs 2 leaves it 7" in message  # 2 x 365 rows
    assert "raise max_epochs, shorten the phase" in message


def test_running_out_late_in_a_ramp_counts_the_whole_phase(make_recipe, make_index):
    objectives = {"mlm": {"share": 0.5}, "rtd": {"share": {"start": 0.5, "end": 0.0}}, "clm": {"share": {"start": 0.0, "end": 0.5}}}
    phases = [{"steps": 10}, {"steps": 100, "sampling": temperature(max_epochs=2), "objectives": objectives, "ramp_plateaus": 20}]
    with pytest.raises(UserError) as found:
        DataPlan(make_recipe(phases), make_index(variants=1))
    # 2 x 365 rows less 40 of the first phase, ten a step, counted in whole rows: in the phase's 69th step.
    assert "runs out of mlm rows at step 78 of 110: max_epochs 2 leaves it 689 of them" in str(found.value)


def test_unimax_is_as_equal_as_the_cap_allows(make_recipe, make_index):
    # 400 rows: Swahili 4 x 7, then an equal share of the rest.
    plan = DataPlan(make_recipe([{"steps": 20, "sampling": unimax(4), "objectives": MLM}]), make_index(variants=1))
    rows = corpora_of(plan.planned())
    assert rows["sw"] in (27, 28)
    assert abs(rows["en"] - rows["de"]) <= 2


def test_unimax_knows_what_phases_before_have_used(make_recipe, make_index):
    phases = [
        {"steps": 5, "sampling": unimax(4), "objectives": MLM, "languages": ["de", "sw"]},
        {"steps": 10, "sampling": unimax(4), "objectives": MLM},
    ]
    first, second = (corpora_of(leaves) for leaves in DataPlan(make_recipe(phases), make_index(variants=1)).planned_by_phase())
    assert first["sw"] in (27, 28)
    assert second["sw"] <= 28 - first["sw"]
    assert second["en"] == pytest.approx(100, abs=2)
    assert second["de"] == pytest.approx(100, abs=2)


def test_unimax_of_more_rows_than_there_are_names_the_most_possible(make_recipe, make_index):
    with pytest.raises(UserError, match=r"draws 1,200 mlm rows, but its corpora have 1,095 left under max_epochs 3; raise max_epochs"):
        DataPlan(make_recipe([{"steps": 60, "sampling": unimax(3), "objectives": MLM}]), make_index(variants=1))


def test_ramps_split_a_phase_into_stairs_of_whole_steps(make_recipe, make_index):
    recipe = make_recipe([{"steps": 7, "ramp_plateaus": 3, "sampling": temperature({"start": 0.0, "end": 1.0}), "objectives": MLM}])
    plan = DataPlan(recipe, make_index())
    # Stairs of 2, 2 and 3 steps, each at its middle: alpha 1/12, 5/12, 10/12.
    exact = {}
    for steps, alpha in ((2, 1 / 12), (2, 5 / 12), (3, 10 / 12)):
        sizes = {name: size**alpha for name, size in (("en", 900_000), ("de", 90_000), ("sw", 10_000))}
        for name, size in sizes.items():
            exact[name] = exact.get(name, 0) + 20 * steps * size / sum(sizes.values())
    assert corpora_of(plan.planned()) == pytest.approx(exact, abs=1)


def test_more_stairs_than_steps_is_a_stair_a_step(make_recipe, make_index):
    objectives = {"mlm": {"share": {"start": 1.0, "end": 0.0}}, "tlm": {"share": {"start": 0.0, "end": 1.0}}}
    plan = DataPlan(make_recipe([{"steps": 5, "objectives": objectives}]), make_index())
    found = [Counter(plan.leaves[leaf].objective for leaf in plan.rows(step).leaf)["tlm"] for step in range(5)]
    assert found == [0, 5, 10, 15, 20]
    assert DataPlan(make_recipe([{"steps": 1, "objectives": objectives}]), make_index()).planned()
