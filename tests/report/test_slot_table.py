from __future__ import annotations

from dataclasses import replace

from xlm.config.recipe import Recipe
from xlm.report import tables
from xlm.report.facts import read_facts
from xlm.report.slot_table import slot_table
from xlm.runs.folder import RunFolder


def test_slots_show_f1_interval_and_gain(recipe: Recipe, finished_run: RunFolder) -> None:
    facts = read_facts(recipe, finished_run)
    table = slot_table(facts)
    assert table is not None
    rows = {row[0]: row for row in table.rows}
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert rows["de"][1:4] == ("29.0 [27.0, 31.0]", "28.0", "32.0")
    assert rows["de"][6] == "+20.0 [17.0, 23.0]"
    assert rows["mean"][1:4] == ("25.6", "", "28.6")
    assert rows["mean"][4] == tables.ABSENT
    assert "hi*" in rows
    without = {**facts.scores, "tasks": {**facts.scores["tasks"], "slots": None}}
    assert slot_table(replace(facts, scores=without)) is None
