"""The figure of a ledger: tokens by language and objective, and how often each language is seen, with its cap.

Up to `ROW_LANGUAGES` languages are rows that can be read off one by one. More are points by rank on
logarithmic axes: what counts then is the shape, and the files beside the figure have every number.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator

from xlm.mixing.ledger import LanguageTotal, Ledger
from xlm.report.figure_style import OBJECTIVE_HUES, colour, new_figure

ROW_LANGUAGES = 40
_ROW_INCHES = 0.25


def draw_ledger(ledger: Ledger) -> tuple[Figure, str, str, str]:
    """Draw what a run sees of every language; also return title, caption and alternative text."""
    figure = _as_rows(ledger) if len(ledger.languages) <= ROW_LANGUAGES else _by_rank(ledger)
    return figure, *_words(ledger)


def _as_rows(ledger: Ledger) -> Figure:
    languages, objectives = ledger.languages, ledger.objectives
    figure = new_figure(1.0 + _ROW_INCHES * len(languages))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    scale, unit = _unit(max(total.tokens for total in languages))
    for row, total in enumerate(languages):
        begin = 0.0
        for objective in objectives:
            tokens = total.tokens_by_objective.get(objective, 0) / scale
            left.barh(row, tokens, left=begin, height=0.62, color=colour(OBJECTIVE_HUES[objective]), zorder=3)
            begin += tokens
        right.plot([0, total.epochs], [row, row], color=colour("grid"), linewidth=1.2, zorder=2)
        if total.max_epochs is not None:
            right.plot([total.max_epochs] * 2, [row - 0.36, row + 0.36], color=colour("purple"), linewidth=1.8, zorder=4)
    right.scatter([total.epochs for total in languages], range(len(languages)), s=22, color=colour("ink"), zorder=5)
    left.set_yticks(range(len(languages)), [total.language for total in languages])
    left.set_ylim(len(languages) - 0.4, -0.6)
    left.set_xlabel(f"{unit}tokens of text" if unit else "tokens of text")
    right.set_xlabel("times seen (epochs)")
    left.set_xlim(0, None)
    right.set_xlim(0, 1.08 * max(1.0, *(max(total.epochs, total.max_epochs or 0.0) for total in languages)))
    for axes in (left, right):
        axes.grid(axis="y", visible=False)
        axes.tick_params(length=0)
        axes.locator_params(axis="x", nbins=5)
    right.axvline(1, color=colour("muted"), linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
    _legend(figure, ledger)
    return figure


def _by_rank(ledger: Ledger) -> Figure:
    languages = ledger.languages
    ranks = range(1, len(languages) + 1)
    figure = new_figure(5.2)
    upper, lower = figure.subplots(2, 1, sharex=True)
    for objective in ledger.objectives:
        points = [(rank, total.tokens_by_objective.get(objective, 0)) for rank, total in zip(ranks, languages, strict=True)]
        _dots(upper, [point for point in points if point[1]], OBJECTIVE_HUES[objective])
    _dots(lower, [(rank, total.epochs) for rank, total in zip(ranks, languages, strict=True) if total.epochs], "ink")
    caps = [(rank, total.max_epochs) for rank, total in zip(ranks, languages, strict=True) if total.max_epochs is not None]
    if caps:
        lower.plot(*zip(*caps, strict=True), color=colour("purple"), linewidth=1.8, zorder=2, drawstyle="steps-mid")
    lower.axhline(1, color=colour("muted"), linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
    upper.set_ylabel("tokens of text")
    lower.set_ylabel("times seen (epochs)")
    lower.set_xlabel("language, by tokens drawn")
    for axes in (upper, lower):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.tick_params(labelcolor=colour("muted"), which="both", length=0)
        axes.minorticks_off()
    # One, two and five, since epochs often stay within a power of ten.
    lower.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    for axis in (lower.xaxis, lower.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    _legend(figure, ledger)
    return figure


def _dots(axes: Axes, points: Sequence[tuple[int, float]], hue: str) -> None:
    ranks, values = zip(*points, strict=True)
    axes.scatter(ranks, values, s=5, color=colour(hue), linewidths=0, zorder=3)


def _legend(figure: Figure, ledger: Ledger) -> None:
    entries = [
        (Line2D([], [], linestyle="", marker="s", markersize=6, color=colour(OBJECTIVE_HUES[name])), str(name))
        for name in ledger.objectives
    ]
    entries.append((Line2D([], [], linestyle="", marker="o", markersize=4.5, color=colour("ink")), "epochs"))
    entries.append((Line2D([], [], color=colour("muted"), linewidth=0.9, linestyle=(0, (2, 2))), "text begins to repeat"))
    if any(total.max_epochs is not None for total in ledger.languages):
        entries.append((Line2D([], [], color=colour("purple"), linewidth=1.8), "cap"))
    figure.legend(*zip(*entries, strict=True), loc="outside upper left", ncols=4, handletextpad=0.3, columnspacing=1.0, handlelength=1.3)


def _words(ledger: Ledger) -> tuple[str, str, str]:
    total = sum(language.tokens for language in ledger.languages)
    often = max(ledger.languages, key=lambda language: language.epochs)
    first, last = ledger.languages[0], ledger.languages[-1]
    caption = "Both sides of a pair count half of its tokens; epochs are of the objective that sees a language most often."
    alt = (
        f"{len(ledger.languages):,} languages, {total:,} tokens of text. {_share(first, total)}; {_share(last, total)}. "
        f"{often.language} is seen most often: {often.epochs:.2f} times."
    )
    return "Languages: tokens drawn, and how often each is seen", caption, alt


def _share(language: LanguageTotal, total: int) -> str:
    return f"{language.language} has {100 * language.tokens / total:.2g} %"


def _unit(largest: float) -> tuple[float, str]:
    """Return what to divide tokens by so that an axis has short numbers, and the word for it."""
    for scale, word in ((1e12, "trillion "), (1e9, "billion "), (1e6, "million "), (1e3, "thousand ")):
        if largest >= 2 * scale:
            return scale, word
    return 1.0, ""
