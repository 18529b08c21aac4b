"""Tables of other stages, read and summed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xlm.config.recipe import Recipe
from xlm.errors import UserError
from xlm.report.facts import (
    dropped_by_reason,
    languages_of,
    losses_by_objective,
    percentages,
    read_facts,
    read_json_lines,
    text_shares,
)
from xlm.runs.folder import RunFolder


def test_languages_come_in_the_order_of_the_recipe(recipe: Recipe, finished_run: RunFolder) -> None:
    facts = read_facts(recipe, finished_run)
    assert tuple(languages_of(facts.scores, "intents")) == recipe.tasks.languages
    assert tuple(languages_of(facts.scores, "retrieval")) == recipe.tasks.languages[1:]


def test_curves_leave_languages_and_the_total_out() -> None:
    rows = [
        {"step": 1, "tokens": 10, "loss": 9.0, "loss/mlm": 9.0, "loss/mlm/de": 8.0},
        {"step": 2, "tokens": 20, "loss": 8.0, "loss/mlm": 8.5, "loss/contrastive": None},
        {"step": 3, "tokens": 30, "loss": 7.0, "loss/contrastive": 4.0, "validation/mlm": 6.0, "validation/mlm/de": 5.0},
    ]
    assert losses_by_objective(rows) == {"mlm": ([10.0, 20.0], [9.0, 8.5]), "contrastive": ([30.0], [4.0])}
    assert losses_by_objective(rows, "validation") == {"mlm": ([30.0], [6.0])}


def test_text_shares_count_monolingual_text_once() -> None:
    corpora = {
        "en": {"kind": "monolingual", "languages": ["en"], "tokens": 300},
        "de": {"kind": "monolingual", "languages": ["de"], "tokens": 100},
        "en_de": {"kind": "pair", "languages": ["en", "de"], "tokens": 5000},
    }
    assert text_shares({"corpora": corpora}) == {"en": 75.0, "de": 25.0}


def test_text_shares_of_pairs_alone_split_each_pair() -> None:
    corpora = {
        "en_de": {"kind": "pair", "languages": ["en", "de"], "tokens": 600},
        "en_fr": {"kind": "pair", "languages": ["en", "fr"], "tokens": 200},
    }
    assert text_shares({"corpora": corpora}) == {"en": 50.0, "de": 37.5, "fr": 12.5}


def test_percentages_of_nothing_are_nothing() -> None:
    assert percentages({"de": 0, "fr": 0}) == {}


def test_dropped_text_is_summed_over_sources() -> None:
    dropped = {"de": {"a": {"empty": 2}, "b": {"empty": 3, "duplicate": 1}}, "fr": {"a": {"empty": 4}}}
    assert dropped_by_reason({"dropped": dropped}) == {"empty": {"de": 5, "fr": 4}, "duplicate": {"de": 1}}


def test_a_damaged_metrics_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps({"step": 1}) + "\n{oops\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"metrics\.jsonl:2: "):
        read_json_lines(path)
    assert read_json_lines(tmp_path / "absent.jsonl") == ()
