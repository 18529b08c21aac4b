"""Held-out losses by language, as a table."""

from __future__ import annotations

from xlm.report.tables import ABSENT
from xlm.report.validation_table import validation_table

FOUND = {
    "validation/loss": 4.5,
    "validation/mlm": 4.25,
    "validation/tlm": 5.0,
    "validation/accuracy/mlm": 0.25,
    "validation/accuracy/tlm": 0.125,
    "validation/mlm/de": 4.125,
    "validation/accuracy/mlm/de": 0.3333,
    "validation/tlm/sw": 5.0,
    "validation/accuracy/tlm/sw": 0.125,
}


def test_every_language_with_held_out_rows_has_one():
    table = validation_table(FOUND, ["de", "fr", "sw"])
    assert table is not None
    assert table.columns == ("language", "MLM loss", "MLM accuracy, %", "TLM loss", "TLM accuracy, %")
    assert table.rows == (
        ("de", "4.125", "33.3", ABSENT, ABSENT),
        ("sw", ABSENT, ABSENT, "5.000", "12.5"),
        ("all", "4.250", "25.0", "5.000", "12.5"),
    )
    assert "4.500 over all" in table.note


def test_one_objective_alone_has_no_columns_of_the_other():
    table = validation_table({name: value for name, value in FOUND.items() if "tlm" not in name}, ["de"])
    assert table is not None
    assert table.columns == ("language", "MLM loss", "MLM accuracy, %")


def test_a_run_without_validation_has_no_table():
    assert validation_table({}, ["de"]) is None
