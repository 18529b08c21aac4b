"""Figures say in words what they show, and are left out where a run has no numbers for them."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET

from xlm.config.recipe import Recipe
from xlm.report.facts import read_facts
from xlm.report.figures import draw_figures
from xlm.runs.folder import RunFolder


def texts(svg: str) -> list[str]:
    return ["".join(node.itertext()).strip() for node in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_a_finished_run_has_every_figure(recipe: Recipe, finished_run: RunFolder) -> None:
    figures = draw_figures(read_facts(recipe, finished_run))
    assert list(figures) == ["intents", "retrieval", "code_switching", "losses", "languages", "ledger", "fertility"]
    assert all(figure.alt.endswith(".") and figure.caption and figure.png for figure in figures.values())
    shown = texts(figures["intents"].svg)
    assert {"en", "zh-Hans", "ja*", "tr*", "hi*", "accuracy, %"} <= set(shown)
    # Rows by falling score: English first, Arabic with 16 % last.
    languages = [text for text in shown if text.removesuffix("*") in recipe.tasks.languages]
    assert (languages[0], languages[-1]) == ("en", "ar")


def test_words_of_a_figure_follow_its_numbers(recipe: Recipe, finished_run: RunFolder) -> None:
    facts = read_facts(recipe, finished_run)
    assert "in 11 of 11 languages" in draw_figures(facts)["intents"].alt
    facts.scores["tasks"]["intents"]["languages"]["ru"]["differences"]["probe-character_floor"]["interval"] = [-1.0, 3.0]
    assert "in 10 of 11 languages" in draw_figures(facts)["intents"].alt


def test_figures_without_numbers_are_left_out(recipe: Recipe, finished_run: RunFolder) -> None:
    facts = read_facts(recipe, finished_run)
    scores = {**facts.scores, "tasks": {"intents": None, "retrieval": None, "code_switching": None}}
    bare = dataclasses.replace(facts, scores=scores, metrics=(), coverage=(), ledger=None)
    assert list(draw_figures(bare)) == ["languages"]


def test_held_out_losses_stand_beside_those_of_training(recipe: Recipe, finished_run: RunFolder) -> None:
    facts = read_facts(recipe, finished_run)
    plain = draw_figures(facts)["losses"]
    assert "held-out" not in plain.alt + plain.caption
    measured = [{**row, "validation/loss": 4.5, "validation/mlm": 4.25, "validation/mlm/de": 4.0} for row in facts.metrics[19::20]]
    validated = draw_figures(dataclasses.replace(facts, metrics=(*facts.metrics, *measured)))["losses"]
    assert "(held-out rows 4.25 at the end)" in validated.alt
    assert validated.alt.count("held-out") == 1  # TLM and the contrast have none
    assert "held-out rows" in validated.caption
    assert validated.svg != plain.svg


def test_a_language_without_a_score_keeps_its_row(recipe: Recipe, finished_run: RunFolder) -> None:
    facts = read_facts(recipe, finished_run)
    facts.scores["tasks"]["retrieval"]["languages"]["hi"]["systems"]["encoder"]["top1_200"] = None
    assert "hi" in texts(draw_figures(facts)["retrieval"].svg)
