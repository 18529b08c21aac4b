"""The page: whole, valid, independent of any network, and safe with whatever a manifest says."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from xlm.config.recipe import Recipe
from xlm.config.strict import load_config
from xlm.corpora.manifest import Manifest
from xlm.report.facts import RunFacts, read_facts
from xlm.report.figures import draw_figures
from xlm.report.page import render_report, subtitle
from xlm.runs.folder import RunFolder

VOID = {"meta", "link", "br", "img", "input", "hr"}
MANIFEST = """
sources:
  - {name: tales, kind: files, licence: "<b>CC0</b> & more", homepage: "javascript:alert(1)", paths: [tales.txt],
     language: de, format: {kind: text}}
  - {name: songs, kind: files, licence: MIT, homepage: "https://example.org/songs", paths: [songs.txt],
     language: fr, format: {kind: text}}
"""


class Page(HTMLParser):
    """Collect tags, and fail on any that is closed out of order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def facts(recipe: Recipe, shared_run: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> RunFacts:
    path = tmp_path_factory.mktemp("manifest") / "manifest.yaml"
    path.write_text(MANIFEST, encoding="utf-8")
    return read_facts(recipe, shared_run, load_config(Manifest, path))


@pytest.fixture(scope="module")
def page(facts: RunFacts) -> str:
    return render_report(facts, draw_figures(facts), "make quickstart")


def test_the_page_is_well_formed_and_whole(page: str) -> None:
    parsed = Page(page)
    assert sum(tag == "svg" for tag, _ in parsed.tags) == 7
    assert all(attributes.get("aria-label") for tag, attributes in parsed.tags if tag == "svg")
    for heading in ("What was trained", "On what", "What it shows", "What it does not show", "Planned and seen, by language"):
        assert heading in page
    assert re.search(r'<th scope="row">pretrain: tlm</th><td>8,640</td><td>8,640</td><td>[\d,]+</td><td>1,080,000</td>', page)
    for number in ("35.6", "94.1", "12,044"):
        assert number in page


def test_the_page_asks_no_network_for_anything(page: str) -> None:
    assert not re.search(r"@import|url\(\s*['\"]?https?:|<script|<link|<img|<iframe", page)
    loaded = [attributes.get("src") for _, attributes in Page(page).tags if "src" in attributes]
    assert loaded == []


def test_the_page_suits_a_phone_and_dark_mode(page: str) -> None:
    assert 'name="viewport" content="width=device-width, initial-scale=1"' in page
    assert "prefers-color-scheme: dark" in page
    tables = len(re.findall(r"<table", page))
    assert tables
    assert len(re.findall(r'<div class="table[^>]*tabindex="0"', page)) == tables


def test_text_of_a_manifest_cannot_become_markup_or_a_script(page: str) -> None:
    assert "&lt;b&gt;CC0&lt;/b&gt; &amp; more" in page
    links = [attributes["href"] for tag, attributes in Page(page).tags if tag == "a"]
    assert links == ["https://example.org/songs"]


def test_ids_are_unique(page: str) -> None:
    ids = [attributes["id"] for _, attributes in Page(page).tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_a_run_without_tasks_still_has_a_page(recipe: Recipe, facts: RunFacts) -> None:
    scores = {**facts.scores, "tasks": {"intents": None, "retrieval": None, "code_switching": None}}
    scores["summary"] = {"wall_s": 10.0, "peak_memory_bytes": 1, "tokens_per_second": None}
    bare = RunFacts(recipe=recipe.model_copy(update={"tasks": None}), scores=scores, metrics=facts.metrics)
    page = render_report(bare, draw_figures(bare), "make quickstart")
    Page(page)
    assert "Zero-shot transfer" not in page
    assert "was not scored" in page
    assert "trained from raw text in less than a minute on" in page
    assert "every seed" not in page


def test_the_subtitle_counts_in_words(facts: RunFacts) -> None:
    scores = {**facts.scores, "summary": {**facts.scores["summary"], "wall_s": 61.0}, "training": {"tokens_by_language": {"en": 5}}}
    scores["machine"] = {**facts.scores["machine"], "cores": 1}
    line = subtitle(RunFacts(recipe=facts.recipe, scores=scores))
    assert line == "A cross-lingual encoder for 1 language, from raw text to scores in 1 minute on 1 processor core."


def test_a_command_that_is_not_known_is_not_claimed(facts: RunFacts, page: str) -> None:
    assert "To make it again: <code>make quickstart</code>" in page
    assert "To make it again" not in render_report(facts, {}, "")
