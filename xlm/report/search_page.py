"""The log of a search, in Markdown: what was tried, and what the dev templates of the dev languages said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xlm.report.ladder_page import TITLES, markdown_table

Json = Mapping[str, Any]
RANKED_BY = "probe"


def search_page(recipe: str, search: str, dev_languages: Sequence[str], found: Sequence[Json]) -> str:
    """Return the page; ``found`` has name, title, set and scores of each candidate, the best first in the table."""
    systems = [name for name in (*TITLES, "retrieval") if any(name in one["scores"] for one in found)]
    rows = []
    for one in sorted(found, key=lambda one: -one["scores"][RANKED_BY]["mean"]):
        cells = []
        for system in systems:
            scores = one["scores"].get(system, {})
            each = ", ".join(f"{language} {scores[language]:.1f}" for language in dev_languages if language in scores)
            cells.append(f"{scores['mean']:.1f} ({each})" if scores else "–")
        rows.append(
            [
                one["title"],
                *cells,
                f"{one['tokens'] / 1e6:.1f}",
                f"{one['train_s'] / 60:.0f}",
                "<br>".join(f"`{value}`" for value in one["set"]) or "as it is",
            ]
        )
    titles = [TITLES.get(system, "retrieval, dev pools") for system in systems]
    return "\n".join(
        [
            f"# How the numbers of {recipe} were chosen",
            "",
            f"Made by `make tune-quickstart` from {search}. Every candidate was pretrained once and scored on dev templates of "
            f"{', '.join(dev_languages)} (evaluation.dev_languages), in percent; no test sentence was read. The best first, by the frozen "
            "probe. One pretraining seed each: differences of a point or two say little.",
            "",
            *markdown_table(["candidate", *titles, "million tokens", "minutes", "set"], rows),
            "",
        ]
    )
