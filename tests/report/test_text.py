"""Sentences claim what the numbers hold, no more."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from xlm.config.phases import Objective
from xlm.config.recipe import Recipe, WhiteningSection
from xlm.report import text
from xlm.report.facts import read_facts
from xlm.report.summary import join_scores
from xlm.runs.folder import RunFolder
from xlm.runs.stage import write_json


def test_a_clear_gain_is_claimed_and_an_unclear_one_is_named(recipe: Recipe, finished_run: RunFolder) -> None:
    facts = read_facts(recipe, finished_run)
    assert "clear (95 % interval above 0, accuracy above chance) in all 8." in text.what_it_shows(facts)
    assert "The difference is +26.2 points [24.1, 28.3]." in text.what_it_shows(facts)
    facts.scores["tasks"]["intents"]["languages"]["ar"]["differences"]["probe-random_encoder"]["interval"] = [-0.5, 4.0]
    assert "in 7 of 8; not in ar." in text.what_it_shows(facts)


def test_a_language_below_chance_is_no_gain_and_is_named(recipe: Recipe, finished_run: RunFolder) -> None:
    facts = read_facts(recipe, finished_run)
    assert "not above chance" not in text.what_it_shows(facts)
    arabic = facts.scores["tasks"]["intents"]["languages"]["ar"]
    arabic["systems"]["chance"]["accuracy"] = arabic["systems"]["probe"]["accuracy"] + 1
    shown = text.what_it_shows(facts)
    assert "in 7 of 8; not in ar." in shown
    assert "It is not above chance, which is always the most frequent English label, in ar." in shown


@pytest.mark.parametrize(("interval", "clear"), [([0.5, 4.0], "in all 8."), ([-0.5, 4.0], "in 7 of 8; not in ar.")])
def test_an_interval_against_chance_decides_where_there_is_one(
    recipe: Recipe, finished_run: RunFolder, interval: list[float], clear: str
) -> None:
    facts = read_facts(recipe, finished_run)
    facts.scores["tasks"]["intents"]["languages"]["ar"]["differences"]["probe-chance"] = {"gain": 2.0, "interval": interval}
    assert clear in text.what_it_shows(facts)


def test_retrieval_says_what_the_start_gives_by_itself(recipe: Recipe, finished_run: RunFolder) -> None:
    facts = read_facts(recipe, finished_run)
    assert (
        "first in 94.1 % of cases; the aligned embeddings that training starts from do so in 51.0 % by themselves, "
        "so training changes that by +43.1 points." in text.what_it_shows(facts)
    )
    del facts.scores["tasks"]["retrieval"]["languages"]["ar"]["systems"]["bag_of_aligned_embeddings"]
    assert text.what_it_shows(facts).endswith("first in 94.1 % of cases.")


def test_training_gets_no_credit_for_what_the_start_knew(recipe: Recipe, finished_run: RunFolder) -> None:
    facts = read_facts(recipe, finished_run)
    start = facts.scores["summary"]["intents.bag_of_aligned_embeddings"]
    assert (
        f"averaged over a sentence, give {start:.1f} % by themselves; training changes that by -0.4 points [-1.5, 0.7]."
        in text.what_it_shows(facts)
    )
    del facts.scores["summary"]["intents.bag_of_aligned_embeddings"]
    assert "averaged" not in text.what_it_shows(facts)


def test_a_collapsed_classifier_is_named(recipe: Recipe, finished_run: RunFolder) -> None:
    facts = read_facts(recipe, finished_run)
    assert "same label" not in text.what_it_does_not_show(facts)
    facts.scores["tasks"]["intents"]["collapsed"] = {"random_encoder": {"ar": [1], "el": [2, 3]}}
    assert "Of random encoder, some seeds give nearly every sentence the same label in ar and el." in text.what_it_does_not_show(facts)


def test_a_run_without_tasks_claims_nothing(recipe: Recipe, finished_run: RunFolder) -> None:
    facts = read_facts(recipe.model_copy(update={"tasks": None}), finished_run)
    scores = {**facts.scores, "summary": {"wall_s": 1.0, "peak_memory_bytes": 1}}
    bare = type(facts)(recipe=facts.recipe, scores=scores)
    assert text.what_it_shows(bare) == "This run was not scored: its recipe declares no tasks."
    lead = " ".join((text.what_was_trained(bare), text.on_what(bare), text.what_it_does_not_show(bare)))
    assert not any(word in lead for word in ("interval", "seed", "intent", "interface strings", "test sets"))


def test_one_of_a_thing_is_not_many(recipe: Recipe, finished_run: RunFolder) -> None:
    phase = recipe.phases[0].model_copy(update={"steps": 1})
    model = recipe.model.model_copy(update={"layers": 1})
    evaluation = recipe.evaluation.model_copy(update={"seeds": (1,), "mean_languages": ("de",)})
    small = recipe.model_copy(update={"phases": (phase,), "model": model, "evaluation": evaluation})
    facts = read_facts(small, finished_run)
    corpus = {"languages": {"en": {}}, "dropped": {"en": {"django": {"empty": 1}}}}
    facts = replace(facts, corpus=corpus)
    assert "of 1 layer, 256" in text.what_was_trained(facts)
    assert "in 1 step, at" in text.what_was_trained(facts)
    assert text.on_what(facts).startswith("The text covers 1 language (en). One text or pair was left out")
    assert "the one seed decides" in text.what_it_does_not_show(facts)
    assert "of cases (de);" in text.what_it_shows(facts)
    assert "above chance) in de." in text.what_it_shows(facts)
    facts.scores["summary"]["wall_s"] = 60.0
    write_json(finished_run.root / "scores.json", facts.scores)
    assert "stages took 1.0 minute in all" in "\n".join(text.closing_lines(finished_run.root, "mlflow ui"))


def test_the_lead_names_size_objectives_and_text(recipe: Recipe, finished_run: RunFolder) -> None:
    facts = read_facts(recipe, finished_run)
    trained = text.what_was_trained(facts)
    assert "4 layers, 256 wide" in trained
    assert "3.6 million tokens in 300 steps" in trained
    assert all(name in trained for name in ("contrastive", "MLM", "TLM"))
    assert "147,600 texts and pairs were left out" in text.on_what(facts)
    assert "ja, tr and hi" in text.what_it_does_not_show(facts)


def test_the_terminal_table_is_aligned(recipe: Recipe, finished_run: RunFolder) -> None:
    lines = text.score_table(join_scores(recipe, finished_run))
    assert len(lines[0]) < 100
    assert lines[0].split()[2:5] == ["switched", "fine-tuned", "start"]
    assert len({len(line) for line in lines}) == 1
    rows = {line.split()[0]: line.split()[1:] for line in lines}
    assert rows["de"] == ["39.0", "43.0", "37.0", "19.5", "17.0", "5.5", "3.0", "96.0"]
    assert rows["en"][-1] == "–"
    assert rows["mean"] == ["35.6", "39.6", "33.6", "17.8", "9.4", "5.5", "–", "94.1"]
    assert "ja*" in rows


def test_a_run_ends_with_where_to_look(recipe: Recipe, finished_run: RunFolder) -> None:
    write_json(finished_run.root / "scores.json", join_scores(recipe, finished_run))
    lines = text.closing_lines(finished_run.root, "mlflow ui --backend-store-uri sqlite:///runs/mlflow.db")
    joined = "\n".join(lines)
    assert str(finished_run.root / "report.html") in joined
    assert "mlflow ui --backend-store-uri" in lines[-1]
    assert "11.4 minutes in all, 3.4 GiB at most" in joined


def test_what_a_dictionary_adds_is_said_where_it_was_used(recipe: Recipe, finished_run: RunFolder) -> None:
    facts = read_facts(recipe, finished_run)
    assert "switched by half of a dictionary as well it is 39.6 % (+4.0 points [3.0, 5.0])." in text.what_it_shows(facts)
    del facts.scores["summary"]["intents.code_switched_training"]
    assert "dictionary" not in text.what_it_shows(facts)
    closing = text.score_table(facts.scores)
    assert "switched" in closing[0]  # by language it is still there


def test_every_objective_has_words() -> None:
    assert set(text._OBJECTIVES) == set(get_args(Objective))


def test_what_the_classifier_reads_is_said_where_it_is_not_the_last_layer_alone(recipe: Recipe, finished_run: RunFolder) -> None:
    facts = read_facts(recipe, finished_run)

    def shown(**changes: object) -> str:
        evaluation = recipe.evaluation.model_copy(update=changes)
        return text.what_it_shows(replace(facts, recipe=recipe.model_copy(update={"evaluation": evaluation})))

    assert "It reads" not in shown(layers="final", whitening=None)
    assert "It reads the states of every layer side by side; so do" in shown(layers="joined", whitening=None)
    whitened = shown(layers="final", whitening=WhiteningSection())
    assert "It reads the encoder's states, scaled down in the directions in which sentences of pretraining text differ" in whitened
