"""The report page: one HTML file that needs no network, for a phone and for a wide screen, light and dark.

It leads with what was trained, on what, what that shows and what it does not; then every section has a
figure and the same numbers as a table, since a figure is for seeing and a table for quoting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jinja2

from xlm.report import tables, text
from xlm.report.facts import RunFacts, counted
from xlm.report.figure_style import SVG_CSS, css_variables
from xlm.report.figures import ReportFigure
from xlm.report.ledger_table import ledger_table, phase_table
from xlm.report.slot_table import slot_table
from xlm.report.switching_tables import bucket_table, code_switching_table, switched_training_table
from xlm.report.tables import Table
from xlm.report.topic_table import topic_table
from xlm.report.validation_table import validation_table

TEMPLATE = "page.html.jinja"


@dataclass(frozen=True)
class Tile:
    """One headline number."""

    value: str
    label: str


@dataclass(frozen=True)
class Section:
    """One part of the page; figures are named, tables may be absent."""

    title: str
    figures: tuple[str, ...]
    tables: tuple[Table | None, ...]
    text: str = ""


def render_report(facts: RunFacts, figures: Mapping[str, ReportFigure], command: str) -> str:
    """Return the page; ``command`` is what makes this run again, empty where that is not known."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("xlm.report", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(TEMPLATE).render(
        title=f"xlm: {facts.recipe.name}",
        subtitle=subtitle(facts),
        tiles=headline(facts),
        lead=lead(facts),
        sections=[section for section in sections(facts) if _has_content(section, figures)],
        figures=figures,
        command=command,
        scored=is_scored(facts),
        light=css_variables(0),
        dark=css_variables(1),
        svg_css=SVG_CSS,
    )


def subtitle(facts: RunFacts) -> str:
    """Return the line under the title."""
    languages = facts.scores["training"].get("tokens_by_language", {})
    minutes = round(facts.scores["summary"]["wall_s"] / 60)
    took = counted(minutes, "minute") if minutes else "less than a minute"
    made = "from raw text to scores" if is_scored(facts) else "trained from raw text"
    machine = counted(facts.scores["machine"]["cores"], "processor core")
    return f"A cross-lingual encoder for {counted(len(languages), 'language')}, {made} in {took} on {machine}."


def is_scored(facts: RunFacts) -> bool:
    """Whether the run has scores of any task."""
    return any(facts.scores["tasks"].values())


def headline(facts: RunFacts) -> list[Tile]:
    """Return the headline numbers that this run has."""
    summary = facts.scores["summary"]
    labels = {
        "intents.probe": "% of intents right in languages without labels (frozen encoder)",
        "intents.code_switched_training": "% with half a dictionary used on the English training sentences",
        "intents.character_floor": "% for character n-grams, no pretraining",
        "intents.random_encoder": "% for the same encoder with random weights",
        "retrieval.top1_200": "% of translations found among 200",
        "retrieval.top1_2000": "% of translations found among 2,000",
    }
    tiles = [Tile(f"{summary[name]:.1f}", label) for name, label in labels.items() if summary.get(name) is not None]
    if summary.get("tokens_per_second"):
        tiles.append(Tile(f"{summary['tokens_per_second']:,.0f}", "tokens a second while pretraining"))
    return tiles


def lead(facts: RunFacts) -> list[tuple[str, str]]:
    """Return the opening: four questions and their answers."""
    return [
        ("What was trained", text.what_was_trained(facts)),
        ("On what", text.on_what(facts)),
        ("What it shows", text.what_it_shows(facts)),
        ("What it does not show", text.what_it_does_not_show(facts)),
    ]


def sections(facts: RunFacts) -> Sequence[Section]:
    """Return the parts of the page in the order a reader asks for them."""
    training = facts.scores["training"]
    validation = validation_table(training.get("validation", {}), list(training.get("tokens_by_language", {})))
    planned_and_seen = (
        phase_table(facts.ledger, training.get("seen", {})),
        ledger_table(facts.ledger, training.get("tokens_by_language", {})),
    )
    return (
        Section(
            "Zero-shot transfer",
            ("intents", "retrieval"),
            (tables.intents_table(facts), slot_table(facts), topic_table(facts), tables.retrieval_table(facts)),
        ),
        Section("Code-switching", ("code_switching",), (switched_training_table(facts), code_switching_table(facts), bucket_table(facts))),
        Section("Training", ("losses", "languages", "ledger", "timeline"), (validation, tables.language_table(facts), *planned_and_seen)),
        Section(
            "Text and vocabulary", ("fertility",), (tables.dropped_table(facts), tables.source_table(facts), tables.vocabulary_table(facts))
        ),
        Section("Cost and provenance", (), (tables.stage_table(facts), tables.provenance_table(facts))),
    )


def _has_content(section: Section, figures: Mapping[str, ReportFigure]) -> bool:
    return any(section.tables) or any(name in figures for name in section.figures)
