"""Sentences claim what the numbers hold, no more."""

from __future__ import annotations

from xlm.config.recipe import Recipe
from xlm.report import text
from xlm.report.facts import read_facts
from xlm.report.summary import join_scores
from xlm.runs.folder import RunFolder
from xlm.runs.stage import write_json


def test_a_clear_gain_is_claimed_and_an_unclear_one_is_named(recipe: Recipe, finished_run: RunFolder) -> None:
    facts = read_facts(recipe, finished_run)
    assert "clear (95 % interval above 0) in all 8." in text.what_it_shows(facts)
    assert "The difference is +26.2 points [24.1, 28.3]." in text.what_it_shows(facts)
    facts.scores["tasks"]["intents"]["languages"]["ar"]["differences"]["probe-random_encoder"]["interval"] = [-0.5, 4.0]
    assert "in 7 of 8; not in ar." in text.what_it_shows(facts)


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
    assert len({len(line) for line in lines}) == 1
    rows = {line.split()[0]: line.split()[1:] for line in lines}
    assert rows["de"] == ["39.0", "37.0", "17.0", "5.5", "96.0"]
    assert rows["en"][-1] == "–"
    assert rows["mean"] == ["35.6", "33.6", "9.4", "5.5", "94.1"]
    assert "ja*" in rows


def test_a_run_ends_with_where_to_look(recipe: Recipe, finished_run: RunFolder) -> None:
    write_json(finished_run.root / "scores.json", join_scores(recipe, finished_run))
    lines = text.closing_lines(finished_run.root, "mlflow ui --backend-store-uri sqlite:///runs/mlflow.db")
    joined = "\n".join(lines)
    assert str(finished_run.root / "report.html") in joined
    assert "mlflow ui --backend-store-uri" in lines[-1]
    assert "11.4 minutes in all, 3.4 GiB at most" in joined
