from __future__ import annotations

from dataclasses import replace

from xlm.config.recipe import Recipe
from xlm.report import tables
from xlm.report.facts import read_facts
from xlm.report.switching_tables import bucket_table, code_switching_table, switched_training_table
from xlm.runs.folder import RunFolder


def test_code_switching_starts_with_plain_english_and_shows_what_was_really_switched(recipe: Recipe, finished_run: RunFolder) -> None:
    table = code_switching_table(read_facts(recipe, finished_run))
    assert table is not None
    assert table.columns[1:5] == ("frozen probe", "char n-grams", "probe, switched training", "char n-grams, switched training")
    assert table.rows[0][:5] == ("nothing (English)", "90.0", "90.0", "89.0", "88.0")
    assert table.rows[1][:7] == ("de at 25%", "79.0", "64.2", "81.5", "67.8", "15 %", "11.2")
    assert "de 34 %, ru 34 %, zh-Hans 34 %" in table.note


def test_a_bucket_with_too_few_sentences_is_shown_without_a_test(recipe: Recipe, finished_run: RunFolder) -> None:
    table = bucket_table(read_facts(recipe, finished_run))
    assert table is not None
    rows = {row[0]: row for row in table.rows}
    assert rows["10 to 20"] == ("10 to 20", "80.0", "66.0", "82.0", "67.0", "+14.0 [10.0, 18.0]", "+15.0 [11.0, 19.0]", "800")
    assert rows["40 to 50"] == ("40 to 50", "66.0", "41.0", "68.0", "42.0", tables.ABSENT, tables.ABSENT, "150")


def test_switched_training_stands_beside_plain(recipe: Recipe, finished_run: RunFolder) -> None:
    facts = read_facts(recipe, finished_run)
    table = switched_training_table(facts)
    assert table is not None
    rows = {row[0]: row for row in table.rows}
    assert rows["de"][1:3] == ("39.0", "43.0")
    assert rows["de"][-1] == "+4.0 [2.0, 6.0]"
    assert rows["mean"][-1] == "+4.0 [3.0, 5.0]"
    assert "27 % of the words" in table.note
    plain = {**facts.scores["tasks"], "intents": {**facts.scores["tasks"]["intents"], "code_switched_training": None}}
    assert switched_training_table(replace(facts, scores={**facts.scores, "tasks": plain})) is None
