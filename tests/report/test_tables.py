"""Tables: every language a row, every row as long as its head, numbers as text."""

from __future__ import annotations

from xlm.config.recipe import Recipe
from xlm.report import tables
from xlm.report.facts import read_facts
from xlm.report.switching_tables import bucket_table, code_switching_table, switched_training_table
from xlm.runs.folder import RunFolder


def test_every_row_is_as_long_as_its_head(recipe: Recipe, finished_run: RunFolder) -> None:
    facts = read_facts(recipe, finished_run)
    made = [
        tables.intents_table(facts),
        tables.retrieval_table(facts),
        code_switching_table(facts),
        bucket_table(facts),
        switched_training_table(facts),
        tables.language_table(facts),
        tables.dropped_table(facts),
        tables.vocabulary_table(facts),
        tables.stage_table(facts),
        tables.provenance_table(facts),
    ]
    for table in made:
        assert table is not None
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.columns)}


def test_intents_show_score_interval_and_gain(recipe: Recipe, finished_run: RunFolder) -> None:
    table = tables.intents_table(read_facts(recipe, finished_run))
    assert table is not None
    rows = {row[0]: row for row in table.rows}
    assert rows["de"][1] == "39.0 [36.5, 41.5]"
    assert rows["de"][table.columns.index("gain over n-grams [95 %]")] == "+22.0 [20.0, 24.0]"
    assert rows["mean"][1] == "35.6"
    assert "ja*" in rows
    assert "de, fr, es" in table.note


def test_a_pool_too_small_for_2000_is_a_dash_and_named(recipe: Recipe, finished_run: RunFolder) -> None:
    table = tables.retrieval_table(read_facts(recipe, finished_run))
    assert table is not None
    rows = {row[0]: row for row in table.rows}
    assert rows["hi"][table.columns.index("2,000: mean")] == tables.ABSENT
    assert rows["de"][table.columns.index("2,000: mean")] == "82.0"
    assert "Not in the mean of 2,000: ar (pool of 240), hi (pool of 240)." in table.note
    assert "mean of 200" not in table.note


def test_a_pair_counts_in_both_languages(recipe: Recipe, finished_run: RunFolder) -> None:
    table = tables.language_table(read_facts(recipe, finished_run))
    assert table is not None
    rows = {row[0]: row for row in table.rows}
    assert rows["en"][table.columns.index("pairs")] == "275,000"
    assert rows["hi"][table.columns.index("pairs")] == "25,000"


def test_reasons_are_sorted_by_how_much_they_took(recipe: Recipe, finished_run: RunFolder) -> None:
    table = tables.dropped_table(read_facts(recipe, finished_run))
    assert table is not None
    assert [row[:2] for row in table.rows] == [("duplicate", "144,000"), ("wrong script", "2,520"), ("empty", "1,080")]


def test_intervals_and_absent_scores() -> None:
    assert tables.with_interval(None, None) == tables.ABSENT
    assert tables.with_interval(1.0, None, signed=True) == "+1.0"
    assert tables.with_interval(-1.25, [-3.0, 0.5]) == "-1.2 [-3.0, 0.5]"
    assert tables.percent(0.0) == "0.0"


def test_dev_languages_are_marked_and_the_mean_without_them_is_given(recipe: Recipe, finished_run: RunFolder) -> None:
    facts = read_facts(recipe, finished_run)
    facts.scores["tasks"]["intents"]["languages"]["es"]["dev_language"] = True
    facts.scores["summary"]["intents.probe.without_dev"] = 36.6
    table = tables.intents_table(facts)
    assert table is not None
    rows = {row[0]: row for row in table.rows}
    assert "es†" in rows
    assert rows["mean without †"][1] == "36.6"
    assert "† choices of pretraining" in table.note
    assert tables.marked("hi", {"shown_only": True, "dev_language": True}) == "hi*†"
