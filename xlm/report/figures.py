"""The figures of a report: each is a pure function of the run's numbers, and says in words what it shows.

Languages are rows and values run to the right, so that twelve languages read as well on a phone as on
a wide screen. A figure whose numbers a run does not have is left out, never drawn empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from xlm.report.facts import RunFacts, counted, losses_by_objective, text_shares, trained_shares
from xlm.report.figure_style import OBJECTIVE_HUES, colour, figure_style, inline_svg, new_figure, png_bytes
from xlm.report.ledger_figure import Drawn, draw_ledger, draw_timeline

_ROW_INCHES = 0.27
# System of a score file -> (name for readers, colour, marker); the order is that of legends.
SYSTEMS: dict[str, tuple[str, str, str]] = {
    "probe": ("this encoder, frozen, with a probe", "blue", "o"),
    "code_switched_training": ("the same, switched training", "blue", "P"),
    "encoder": ("this encoder", "blue", "o"),
    "finetuned": ("this encoder, fine-tuned", "green", "D"),
    "bag_of_aligned_embeddings": ("its starting embeddings", "purple", "^"),
    "character_floor": ("character n-grams", "red", "s"),
    "code_switched_character_floor": ("n-grams, switched training", "red", "D"),
    "random_encoder": ("same encoder, random", "muted", "x"),
    "chance": ("chance", "muted", "|"),
}


@dataclass(frozen=True)
class ReportFigure:
    """One figure: file name, title and caption for readers, alternative text, and both renderings."""

    name: str
    title: str
    caption: str
    alt: str
    svg: str
    png: bytes


def draw_figures(facts: RunFacts) -> dict[str, ReportFigure]:
    """Draw every figure that the run has numbers for, by name."""
    drawings: dict[str, Callable[[RunFacts], Drawn | None]] = {
        "intents": draw_intents,
        "retrieval": draw_retrieval,
        "code_switching": draw_code_switching,
        "losses": draw_losses,
        "languages": draw_languages,
        "ledger": lambda facts: draw_ledger(facts.ledger) if facts.ledger else None,
        "timeline": lambda facts: draw_timeline(facts.ledger) if facts.ledger else None,
        "fertility": draw_fertility,
    }
    figures: dict[str, ReportFigure] = {}
    for name, draw in drawings.items():
        with figure_style():
            drawn = draw(facts)
            if drawn is not None:
                figures[name] = rendered(name, drawn)
    return figures


def rendered(name: str, drawn: Drawn) -> ReportFigure:
    """Render both ways what was drawn; call it inside `figure_style`, as the drawing."""
    figure, title, caption, alt = drawn
    return ReportFigure(name, title, caption, alt, inline_svg(figure, name, alt), png_bytes(figure))


def draw_intents(facts: RunFacts) -> Drawn | None:
    """Zero-shot intent accuracy by language: this encoder against the floors."""
    languages: Mapping[str, Any] = (facts.scores["tasks"].get("intents") or {}).get("languages", {})
    if not languages:
        return None
    order = _by_score(languages, lambda language: languages[language]["systems"].get("probe", {}).get("accuracy"))
    present = [name for name in SYSTEMS if any(name in languages[language]["systems"] for language in order)]
    names = [name for name in present if name != "code_switched_character_floor"]  # which stands in a table of its own
    figure, axes = _language_rows(order, [language + ("*" if languages[language].get("shown_only") else "") for language in order])
    for name in names:
        points = [(row, languages[language]["systems"].get(name, {}).get("accuracy")) for row, language in enumerate(order)]
        _draw_points(axes, points, name)
    for row, language in enumerate(order):
        interval = languages[language]["systems"].get("probe", {}).get("interval")
        if interval:
            axes.plot(interval, [row, row], color=colour("blue"), linewidth=1.6, solid_capstyle="butt", zorder=2)
    axes.set_xlabel("accuracy, %")
    axes.set_xlim(0, 100)
    _legend_above(figure, names)
    beaten = sum(_interval_above_zero(facts, language, "probe-character_floor") for language in order if language != "en")
    others = sum(language != "en" for language in order)
    star = " * too few intents or too little text; not in the means." if any(languages[code].get("shown_only") for code in order) else ""
    alt = (
        f"Dots by language. The frozen encoder's accuracy lies above the character n-gram floor, with an interval above "
        f"zero for the difference, in {beaten} of {counted(others, 'language')} other than English."
    )
    caption = f"Trained on English sentences only, scored on templates never seen. Lines: 95 % interval of the frozen encoder.{star}"
    return figure, "Intents: accuracy by language", caption, alt


def draw_retrieval(facts: RunFacts) -> Drawn | None:
    """Top-1 retrieval of translations by language, mean of both directions."""
    languages: Mapping[str, Any] = (facts.scores["tasks"].get("retrieval") or {}).get("languages", {})
    if not languages:
        return None

    def value(language: str, system: str, pool: str) -> float | None:
        scores = languages[language]["systems"].get(system, {}).get(pool)
        return scores["mean"] if scores else None

    order = _by_score(languages, lambda language: value(language, "encoder", "top1_200"))
    names = [name for name in SYSTEMS if any(name in languages[language]["systems"] for language in order)]
    figure, axes = _language_rows(order, order)
    for name in names:
        _draw_points(axes, [(row, value(language, name, "top1_200")) for row, language in enumerate(order)], name)
    large = [(row, value(language, "encoder", "top1_2000")) for row, language in enumerate(order)]
    axes.scatter(*_present(large), marker="o", s=26, facecolors="none", edgecolors=colour("blue"), linewidths=1.2, zorder=4)
    axes.set_xlabel("right translation ranked first, %")
    axes.set_xlim(0, 102)
    hollow = Line2D([], [], linestyle="", marker="o", markersize=5, markerfacecolor="none", markeredgecolor=colour("blue"))
    _legend_above(figure, names, [(hollow, "this encoder, 2,000 candidates")])
    scores = [score for language in order if (score := value(language, "encoder", "top1_200")) is not None]
    span = f"{min(scores):.0f} to {max(scores):.0f} %" if scores else "no share"
    alt = f"Dots by language. With 200 candidates the encoder finds the right translation in {span} of cases."
    caption = "Held-out translation pairs, mean of both directions; full dots: 200 candidates."
    return figure, "Retrieval: finding the translation", caption, alt


def draw_code_switching(facts: RunFacts) -> Drawn | None:
    """Accuracy against how mixed a sentence is (its code-mixing index)."""
    buckets = [bucket for bucket in (facts.scores["tasks"].get("code_switching") or {}).get("cmi_buckets", []) if bucket["sentences"]]
    if len(buckets) < 2:
        return None
    figure = new_figure(2.7)
    axes = figure.subplots()
    labels = [f"{bucket['low']:g}–{bucket['high']:g}" if bucket["high"] > bucket["low"] else f"{bucket['low']:g}" for bucket in buckets]
    names = [name for name in SYSTEMS if all(isinstance(bucket.get(name), int | float) for bucket in buckets)]
    for name in names:
        _, hue, marker = SYSTEMS[name]
        axes.plot(labels, [bucket[name] for bucket in buckets], color=colour(hue), marker=marker, markersize=5, linewidth=1.6)
    axes.set_ylim(0, 100)
    axes.set_xlabel("code-mixing index of the sentence (0: one language)")
    axes.set_ylabel("accuracy, %")
    _legend_above(figure, names)
    ends = [f"{SYSTEMS[name][0]} {buckets[0][name]:.0f} to {buckets[-1][name]:.0f} %" for name in names]
    alt = "Lines of accuracy from the least to the most mixed sentences: " + "; ".join(ends) + "."
    caption = "English test sentences with words replaced by dictionary translations; only English labels were seen."
    return figure, "Code-switching: accuracy as sentences get more mixed", caption, alt


def draw_losses(facts: RunFacts) -> Drawn | None:
    """Loss of each objective against tokens seen, and on held-out rows where there are any."""
    curves, held_out = losses_by_objective(facts.metrics), losses_by_objective(facts.metrics, "validation")
    if not curves:
        return None
    figure = new_figure(0.5 + 1.35 * len(curves))
    panels = figure.subplots(len(curves), 1, sharex=True, squeeze=False)[:, 0]
    words = []
    for axes, (objective, (tokens, losses)) in zip(panels, curves.items(), strict=True):
        axes.plot([count / 1e6 for count in tokens], losses, color=colour(OBJECTIVE_HUES.get(objective, "purple")), linewidth=1.4)
        axes.set_title(objective, loc="left", fontsize=9, color=colour("ink"))
        axes.tick_params(labelcolor=colour("muted"))
        words.append(f"{objective} from {losses[0]:.2f} to {losses[-1]:.2f}")
        if objective in held_out:
            seen, validated = held_out[objective]
            axes.plot([count / 1e6 for count in seen], validated, color=colour("ink"), linewidth=1.0, marker="o", markersize=3.5)
            words[-1] += f" (held-out rows {validated[-1]:.2f} at the end)"
    panels[-1].set_xlabel("million tokens seen")
    alt = "One curve an objective against tokens: " + ", ".join(words) + "."
    caption = "Mean loss of the steps since the point before, in nats; each objective on its own scale."
    if any(objective in held_out for objective in curves):
        caption += " Dots: held-out rows, masked the same way each time."
    return figure, "Loss while training", caption, alt


def draw_languages(facts: RunFacts) -> Drawn | None:
    """Share of the text each language has, and share of the training it got."""
    text, trained = text_shares(facts.shards), trained_shares(facts.scores["training"])
    if not text or not trained:
        return None
    order = sorted(text, key=lambda language: -text[language])
    figure, axes = _language_rows(order, order)
    for row, language in enumerate(order):
        axes.barh(row - 0.19, text[language], height=0.34, color=colour("muted"), zorder=3)
        axes.barh(row + 0.19, trained.get(language, 0.0), height=0.34, color=colour("blue"), zorder=3)
    axes.set_xlim(0, None)
    axes.set_xlabel("share of tokens, %")
    handles = [Line2D([], [], linestyle="", marker="s", markersize=6, color=colour(hue)) for hue in ("muted", "blue")]
    figure.legend(handles, ["of the text", "of training"], loc="outside upper left", ncols=2, handletextpad=0.2)
    alt = f"Two bars a language. {order[0]} has {text[order[0]]:.0f} % of the text and {trained.get(order[0], 0):.0f} % of training; "
    alt += f"{order[-1]} has {text[order[-1]]:.1f} % and {trained.get(order[-1], 0):.1f} %."
    return (
        figure,
        "Languages: text and training",
        "What each language has, and what sampling made of it; English is one side of most pairs.",
        alt,
    )


def draw_fertility(facts: RunFacts) -> Drawn | None:
    """Pieces per word by language; per character where words are not written apart."""
    rows = {row["language"]: row for row in facts.coverage}
    values = {language: row["pieces_per_word"] or row["pieces_per_character"] for language, row in rows.items()}
    if not values:
        return None
    order = sorted(values, key=lambda language: (rows[language]["pieces_per_word"] is None, values[language]))
    figure, axes = _language_rows(order, order)
    for row, language in enumerate(order):
        per_word = rows[language]["pieces_per_word"] is not None
        axes.barh(row, values[language], height=0.6, color=colour("blue" if per_word else "purple"), zorder=3)
        axes.annotate(
            f"{values[language]:.2f}", (values[language], row), xytext=(3, 0), textcoords="offset points", va="center", fontsize=8
        )
    axes.set_xlim(0, max(values.values()) * 1.12)
    axes.set_xlabel("pieces")
    handles = [Line2D([], [], linestyle="", marker="s", markersize=6, color=colour(hue)) for hue in ("blue", "purple")]
    figure.legend(handles, ["per word", "per character"], loc="outside upper left", ncols=2, handletextpad=0.2)
    alt = "One bar a language: " + ", ".join(f"{language} {values[language]:.2f}" for language in order) + "."
    return (
        figure,
        "Vocabulary: pieces per word",
        "Fewer is shorter sequences; languages written without spaces are given per character.",
        alt,
    )


def _language_rows(order: Sequence[str], labels: Sequence[str]) -> tuple[Figure, Axes]:
    figure = new_figure(1.0 + _ROW_INCHES * len(order))
    axes = figure.subplots()
    axes.set_yticks(range(len(order)), labels)
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.tick_params(length=0)
    return figure, axes


def _draw_points(axes: Axes, points: Sequence[tuple[int, float | None]], system: str) -> None:
    _, hue, marker = SYSTEMS[system]
    axes.scatter(*_present(points), marker=marker, s=26, color=colour(hue), zorder=5 if hue == "blue" else 3, linewidths=1.2)


def _present(points: Sequence[tuple[int, float | None]]) -> tuple[list[float], list[int]]:
    """Return values and rows of the points that have a value."""
    kept = [(value, row) for row, value in points if value is not None]
    return [value for value, _ in kept], [row for _, row in kept]


def _legend_above(figure: Figure, systems: Sequence[str], more: Sequence[tuple[Line2D, str]] = ()) -> None:
    entries = [
        (Line2D([], [], linestyle="", marker=SYSTEMS[name][2], markersize=5, color=colour(SYSTEMS[name][1])), SYSTEMS[name][0])
        for name in systems
    ]
    entries.extend(more)
    figure.legend(*zip(*entries, strict=True), loc="outside upper left", ncols=2, handletextpad=0.2, columnspacing=1.0, labelspacing=0.3)


def _by_score(languages: Mapping[str, Any], score: Callable[[str], float | None]) -> list[str]:
    """Return languages by falling score, those without one last."""
    return sorted(languages, key=lambda language: (score(language) is None, -(score(language) or 0.0), language))


def _interval_above_zero(facts: RunFacts, language: str, difference: str) -> bool:
    found = facts.scores["tasks"]["intents"]["languages"][language].get("differences", {}).get(difference)
    return bool(found and found["interval"] and found["interval"][0] > 0)
