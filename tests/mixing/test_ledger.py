"""The ledger against what the data plan really draws, row by row."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from xlm.mixing.data_plan import DataPlan
from xlm.mixing.ledger import LOGGED_LANGUAGES, RunningLedger, cap_sentences, plan_ledger
from xlm.mixing.seen import Seen

TWO_PHASES = [{"steps": 60}, {"steps": 50, "sequence_length": 128, "languages": ["en", "de"]}]
CAPPED = [{"steps": 30, "sampling": {"kind": "temperature", "alpha": 0.5, "max_epochs": 2}, "objectives": {"mlm": {"share": 1.0}}}]

NOTHING = Seen({}, {})


@pytest.fixture
def make_ledger(make_index, make_recipe):
    def make(phases, variants=2, **training):
        index = make_index(variants=variants)
        plan = DataPlan(make_recipe(phases, **training), index)
        return plan, plan_ledger(plan, index)

    return make


def drawn_by_phase(plan):
    drawn = Counter()
    for step in range(plan.total_steps):
        rows = plan.rows(step)
        for leaf, count in zip(*np.unique(rows.leaf, return_counts=True), strict=True):
            drawn[plan.recipe.phases[rows.phase].name, plan.leaves[leaf].objective, plan.leaves[leaf].corpus] += int(count)
    return drawn


def test_rows_are_those_that_are_drawn(make_ledger):
    plan, ledger = make_ledger(TWO_PHASES)
    assert {(entry.phase, entry.objective, entry.corpus): entry.rows for entry in ledger.entries} == drawn_by_phase(plan)
    for phase in plan.recipe.phases:
        assert sum(entry.share for entry in ledger.entries if entry.phase == phase.name) == pytest.approx(1)


def test_totals_add_up(make_ledger):
    _, ledger = make_ledger(TWO_PHASES)
    for name in ("rows", "tokens", "positions"):
        assert sum(getattr(entry, name) for entry in ledger.entries) == sum(getattr(total, name) for total in ledger.corpora)
    halves = sum(len(total.languages) for total in ledger.corpora)
    for name in ("tokens", "positions"):
        lost = sum(getattr(total, name) for total in ledger.corpora) - sum(getattr(total, name) for total in ledger.languages)
        assert 0 <= lost <= halves  # an odd token of a pair belongs to neither side
    for total in ledger.languages:
        assert sum(total.tokens_by_objective.values()) == total.tokens


def test_positions_are_tokens_and_special_pieces(make_ledger):
    _, ledger = make_ledger([{"steps": 60}])
    for entry in ledger.entries:
        assert entry.tokens == entry.rows * 60  # the index says 60 tokens of text and no hole in rows of 64
        assert entry.positions == entry.rows * 64


def test_the_timeline_adds_up_to_the_run(make_ledger):
    plan, ledger = make_ledger(TWO_PHASES)
    assert [stretch.first_step for stretch in ledger.timeline[1:]] == [stretch.stop_step for stretch in ledger.timeline[:-1]]
    assert (ledger.timeline[0].first_step, ledger.timeline[-1].stop_step) == (0, plan.total_steps)
    assert any(stretch.first_step == 60 for stretch in ledger.timeline)  # where the second phase begins
    for objective in ledger.objectives:
        rows = sum(stretch.rows_by_objective[objective] for stretch in ledger.timeline)
        assert rows == sum(total.rows for total in ledger.corpora if total.objective == objective)
    for total in ledger.languages:
        tokens = sum(stretch.tokens_by_language[total.language] for stretch in ledger.timeline)
        assert tokens == pytest.approx(total.tokens, rel=0.01, abs=len(ledger.timeline) * 10)  # rounded in every stretch
    assert all(stretch.other_tokens == 0 for stretch in ledger.timeline)


@pytest.mark.parametrize("warmup", [None, {"start_tokens": 128, "steps": 150}])
def test_a_corpus_repeats_from_the_step_that_draws_a_row_again(make_ledger, warmup):
    plan, ledger = make_ledger([{"steps": 200}], variants=1, batch_warmup=warmup)
    seen: set[tuple[int, int]] = set()
    first: dict[int, int] = {}
    for step in range(plan.total_steps):
        rows = plan.rows(step)
        for key in zip(rows.leaf.tolist(), rows.row.tolist(), strict=True):
            if key in seen:
                first.setdefault(key[0], step)
            seen.add(key)
    expected = {(plan.leaves[leaf].objective, plan.leaves[leaf].corpus): step for leaf, step in first.items()}
    assert expected
    assert {(total.objective, total.corpus): total.repeats_from for total in ledger.corpora if total.repeats_from is not None} == expected


def test_what_began_in_one_phase_repeats_in_the_next(make_ledger):
    plan, ledger = make_ledger([{"steps": 30}, {"steps": 170}], variants=1)
    _, whole = make_ledger([{"steps": 200}], variants=1)
    assert [total.repeats_from for total in ledger.corpora] == pytest.approx([total.repeats_from for total in whole.corpora], abs=1)
    assert any(total.repeats_from and total.repeats_from > 30 for total in ledger.corpora)
    assert plan.total_steps == 200


def test_caps_are_told_with_their_step(make_ledger):
    plan, ledger = make_ledger(CAPPED)
    capped = {total.corpus: total for total in ledger.corpora if total.capped_from is not None}
    assert set(capped) == {"sw", "de"}
    sentences = cap_sentences(plan)
    for number, name in enumerate(("sw", "de")):  # the smaller first
        total = capped[name]
        assert total.max_epochs == 2
        assert 1.8 < total.epochs <= 2
        leaf = [each.corpus for each in plan.leaves].index(name)
        draws = [leaf in plan.rows(step).leaf for step in range(plan.total_steps)]
        assert any(draws[: total.capped_from])
        assert not any(draws[total.capped_from :])
        assert f"from step {total.capped_from:,} on, mlm draws no more of '{name}' (max_epochs 2, phase 'phase0')" in sentences[number]


def test_many_caps_are_cut_short(make_ledger):
    plan, _ = make_ledger(CAPPED)
    lines = cap_sentences(plan, most=1)
    assert len(lines) == 2
    assert lines[1].startswith("cap: 1 more, ")


def test_while_training_epochs_are_exact_and_the_rest_is_what_was_counted(make_ledger):
    plan, ledger = make_ledger(TWO_PHASES)
    tokens = {("phase0", "mlm", "en"): 7, ("phase1", "mlm", "en"): 2, ("phase1", "tlm", "de"): 5}
    seen = Seen(tokens, {("phase0", "mlm"): 3, ("phase1", "mlm"): 1, ("phase1", "tlm"): 2})
    metrics = RunningLedger(plan).metrics(plan.total_steps, seen)
    for total in ledger.languages:
        assert metrics[f"epochs/{total.language}"] == pytest.approx(total.epochs)
    assert metrics["epochs/most"] == max(total.epochs for total in ledger.languages)
    assert {name: value for name, value in metrics.items() if not name.startswith("epochs/")} == {
        "tokens/en": 9.0,
        "tokens/de": 5.0,
        "tokens/sw": 0.0,
        "rows/mlm": 4.0,
        "rows/tlm": 2.0,
        "rows/contrastive": 0.0,
        "objective_tokens/mlm": 9.0,
        "objective_tokens/tlm": 5.0,
        "objective_tokens/contrastive": 0.0,
    }


def test_a_language_is_never_seen_less_often(make_index, make_recipe):
    # Swahili's larger corpus, with English, comes in late: its first row must not make the language look unseen.
    sampling = {"kind": "fixed", "weights": {"en": 1e-2, "de": 1, "sw": 1e-1}}
    phases = [{"steps": 40, "sampling": sampling}, {"steps": 60, "sequence_length": 128}]
    plan = DataPlan(make_recipe(phases), make_index())
    ledger = RunningLedger(plan)
    before = ledger.metrics(0, NOTHING)
    assert not any(before.values())
    for step in range(1, plan.total_steps + 1):
        after = ledger.metrics(step, NOTHING)
        assert all(after[name] >= value for name, value in before.items())
        before = after
    assert all(value for name, value in before.items() if name.startswith("epochs/"))


def test_many_languages_are_logged_as_two_figures(make_index, make_recipe):
    names = [f"{first}{second}" for first in "abcdef" for second in "abcdefghi"][: LOGGED_LANGUAGES + 1]
    index = make_index(tokens=dict.fromkeys(names, 1000), rows=dict.fromkeys(names, 10))
    plan = DataPlan(make_recipe([{"objectives": {"mlm": {"share": 1.0}}}]), index)
    assert set(RunningLedger(plan).metrics(3, NOTHING)) == {"epochs/most", "epochs/median", "rows/mlm", "objective_tokens/mlm"}
