from __future__ import annotations

from dataclasses import replace

from xlm.config.recipe import Recipe
from xlm.report.facts import read_facts
from xlm.report.topic_table import topic_table
from xlm.runs.folder import RunFolder


def test_topics_show_accuracy_interval_and_gain(recipe: Recipe, finished_run: RunFolder) -> None:
    facts = read_facts(recipe, finished_run)
    table = topic_table(facts)
    assert table is not None
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert {row[0]: row for row in table.rows}["fr"] == ("fr", "60.0 [57.0, 63.0]", "51.0", "–", "–", "–", "+9.0 [5.0, 13.0]", "700")
    assert "2 classes: arts, history" in table.note
    assert topic_table(replace(facts, scores={**facts.scores, "tasks": {**facts.scores["tasks"], "topics": None}})) is None
