"""A ledger in words and files."""

from __future__ import annotations

import csv
import io

import pytest

from tests.report.made_up_ledger import made_up_ledger
from xlm.report.ledger_table import MOST_LINES, ledger_files, ledger_json, ledger_lines, ledger_table, phase_table

LANGUAGES = ("en", "fr", "de")


def test_few_languages_are_all_printed():
    lines = list(ledger_lines(made_up_ledger(LANGUAGES)))
    text = "\n".join(lines)
    assert "more ..." not in text
    objectives, corpora, languages = text.split("\n\n")
    assert objectives.splitlines()[0].split() == ["phase", "objective", "rows", "tokens", "positions", "share"]
    assert [line.split()[:2] for line in objectives.splitlines()[1:]].count(["short", "mlm"]) == 1
    assert "all phases" in objectives
    assert {line.split()[0] for line in corpora.splitlines()[1:]} == {"en", "fr", "de", "en_fr", "en_de"}
    assert languages.splitlines()[0].split()[:6] == ["language", "tokens", "mlm", "tlm", "epochs", "cap"]
    assert len(languages.splitlines()) == 4
    assert all(line == line.rstrip() for line in lines)


def test_of_many_languages_the_largest_and_the_smallest_are_printed():
    languages = [f"l{number}" for number in range(1833)]
    lines = list(ledger_lines(made_up_ledger(languages)))
    assert len(lines) < 3 * MOST_LINES
    assert "... 1,793 more ..." in lines
    assert lines[-1].startswith("l1832 ")


def test_files_hold_every_line():
    languages = [f"l{number}" for number in range(100)]
    ledger = made_up_ledger(languages)
    files = {name: list(csv.DictReader(io.StringIO(text))) for name, text in ledger_files(ledger).items()}
    assert len(files["languages.csv"]) == 100
    assert len(files["corpora.csv"]) == len(ledger.corpora)
    assert len(files["phases.csv"]) == len(ledger.entries)
    assert sum(int(row["tokens"]) for row in files["phases.csv"]) == sum(entry.tokens for entry in ledger.entries)
    assert files["languages.csv"][0]["tokens_mlm"] == str(ledger.languages[0].tokens_by_objective["mlm"])
    assert files["corpora.csv"][-1]["languages"] == "l0 l99"


def test_json_says_the_same():
    ledger = made_up_ledger(LANGUAGES)
    data = ledger_json(ledger)
    assert data["steps"] == ledger.steps
    assert [total["language"] for total in data["languages"]] == [total.language for total in ledger.languages]
    assert data["corpora"][0]["repeats_from"] == ledger.corpora[0].repeats_from


def test_the_report_sets_planned_beside_seen():
    ledger = made_up_ledger(LANGUAGES)
    table = ledger_table(ledger, {"en": 600.0, "fr": 400.0})
    assert table is not None
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert rows["en"]["tokens seen"] == "600"
    assert rows["en"]["% seen"] == "60.00"
    assert rows["de"]["tokens seen"] == "–"
    assert sum(float(row["% planned"]) for row in rows.values()) == pytest.approx(100, abs=0.02)
    assert ledger_table(None, {}) is None


def test_the_report_sets_planned_beside_seen_by_phase_and_objective():
    ledger = made_up_ledger(LANGUAGES)
    planned = {
        (phase, objective): sum(entry.rows for entry in ledger.entries if (entry.phase, entry.objective) == (phase, objective))
        for phase in ("short", "long")
        for objective in ("mlm", "tlm")
    }
    seen = {"short": {"mlm": {"rows": planned["short", "mlm"], "tokens": 12_345, "tokens_by_language": {}}}}
    table = phase_table(ledger, seen)
    assert table is not None
    rows = {row[0]: row[1:] for row in table.rows}
    assert list(rows) == ["short: mlm", "short: tlm", "long: mlm", "long: tlm"]
    assert rows["short: mlm"][0] == rows["short: mlm"][1] == f"{planned['short', 'mlm']:,}"
    assert rows["short: mlm"][2:] == (f"{planned['short', 'mlm'] * 126:,}", "12,345")
    assert rows["long: tlm"] == (f"{planned['long', 'tlm']:,}", "–", f"{planned['long', 'tlm'] * 126:,}", "–")
    assert phase_table(None, {}) is None


def test_the_report_shows_the_largest_of_many():
    table = ledger_table(made_up_ledger([f"l{number}" for number in range(100)]), {})
    assert table is not None
    assert len(table.rows) == MOST_LINES
    assert "The 40 largest of 100" in table.note
