"""The figure of a ledger: tokens by language and objective, and how often each language is seen, with its cap.

Up to `ROW_LANGUAGES` languages are rows that can be read off one by one. More are points by rank on
logarithmic axes: what counts then is the shape, and the files beside the figure have every number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator

from xlm.mixing.ledger import LanguageTotal, Ledger, Stretch
from xlm.report.facts import percentages
from xlm.report.figure_style import OBJECTIVE_HUES, colour, new_figure

ROW_LANGUAGES = 40
_ROW_INCHES = 0.25
_LABEL_PERCENT = 4.5  # a band lower than this has no room for its name
# A cap farther out than this many times the most epochs is told in words, so that the epochs can be read.
_CAP_IN_SIGHT = 2.5
# Whether shares change is seen between so many parts of a run: a single stretch of a short one has few rows.
_PARTS = 6
_MOVES_TOLD = 3
_OTHERS = "others"

Drawn = tuple[Figure, str, str, str]  # figure, title, caption, alternative text


def draw_ledger(ledger: Ledger) -> Drawn:
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
    most = max(1.0, *(total.epochs for total in languages))
    caps = {total.max_epochs for total in languages if total.max_epochs is not None}
    in_sight = [cap for cap in caps if cap <= _CAP_IN_SIGHT * most]
    right.set_xlabel("times seen (epochs)" + (f"; cap {max(caps):g}" if caps and not in_sight else ""))
    left.set_xlim(0, None)
    right.set_xlim(0, 1.08 * max(most, *in_sight, 0.0))
    for axes in (left, right):
        axes.grid(axis="y", visible=False)
        axes.tick_params(length=0)
        axes.locator_params(axis="x", nbins=5)
    right.axvline(1, color=colour("muted"), linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
    _legend(figure, ledger, with_cap=bool(in_sight))
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
    _legend(figure, ledger, with_cap=bool(caps))
    return figure


def draw_timeline(ledger: Ledger) -> Drawn | None:
    """Draw what each objective and each language gets as the run goes on; None where nothing changes."""
    timeline = ledger.timeline
    moved = _moved(timeline, [_rows(stretch) for stretch in timeline])
    moved_languages = _moved(timeline, [_tokens(stretch) for stretch in timeline])
    if len(timeline) < 2 or (len({entry.phase for entry in ledger.entries}) == 1 and not moved and not moved_languages):
        return None
    names = list(timeline[0].tokens_by_language)
    others = _OTHERS if any(stretch.other_tokens for stretch in timeline) else None
    edges = [timeline[0].first_step, *(stretch.stop_step for stretch in timeline)]
    figure = new_figure(4.6)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(2, 3))
    rows = [[float(stretch.rows_by_objective.get(objective, 0)) for stretch in timeline] for objective in ledger.objectives]
    _bands(upper, edges, rows, [(colour(OBJECTIVE_HUES[objective]), 1.0) for objective in ledger.objectives], list(ledger.objectives))
    tokens = [[float(stretch.tokens_by_language[name]) for stretch in timeline] for name in names]
    shades = [(colour("blue"), (0.95, 0.7, 0.85, 0.6)[place % 4]) for place in range(len(names))]
    if others is not None:
        names.append(others)
        tokens.append([float(stretch.other_tokens) for stretch in timeline])
        shades.append((colour("muted"), 0.7))
    _bands(lower, edges, tokens, shades, names)
    upper.set_ylabel("% of rows")
    lower.set_ylabel("% of tokens")
    lower.set_xlabel("step")
    lower.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    for axes in (upper, lower):
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(0, 100)
        axes.grid(visible=False)
        axes.tick_params(labelcolor=colour("muted"), length=0)
    alt = f"Bands over {ledger.steps:,} steps. Of the rows: {_from_to(_rows(timeline[0]), _rows(timeline[-1]), ledger.objectives)}."
    if moved_languages:
        alt += f" Of the tokens: {_from_to(_tokens(timeline[0]), _tokens(timeline[-1]), moved_languages[:_MOVES_TOLD])}."
    return figure, "What is drawn as the run goes on", "Above by objective, below by language; half of a pair counts for either side.", alt


def _bands(
    axes: Axes, edges: Sequence[int], amounts: Sequence[Sequence[float]], shades: Sequence[tuple[str, float]], names: Sequence[str]
) -> None:
    """Stack shares in percent, [bands][stretches], and write each band's name where it is high for longest, if it fits there."""
    totals = [sum(column) or 1.0 for column in zip(*amounts, strict=True)]
    floor = [0.0] * len(totals)
    for band, (hue, opacity), name in zip(amounts, shades, names, strict=True):
        top = [low + 100 * amount / total for low, amount, total in zip(floor, band, totals, strict=True)]
        axes.stairs(top, edges, baseline=floor, fill=True, color=hue, alpha=opacity, linewidth=0)
        heights = [high - low for high, low in zip(top, floor, strict=True)]
        if max(heights) > _LABEL_PERCENT:
            first, last = _longest_run([height > 0.85 * max(heights) for height in heights])
            middle = (first + last) // 2
            centre = ((edges[first] + edges[last + 1]) / 2, (top[middle] + floor[middle]) / 2)
            axes.annotate(name, centre, ha="center", va="center", color="white", fontsize=7.5)
        floor = top


def _longest_run(flags: Sequence[bool]) -> tuple[int, int]:
    """Return the first and the last place of the longest run of flags that are set."""
    best, begin = (0, -1), 0
    for place, flag in enumerate([*flags, False]):
        if not flag:
            best = max(best, (begin, place - 1), key=lambda run: run[1] - run[0])
            begin = place + 1
    return best


def _moved(timeline: Sequence[Stretch], amounts: Sequence[Mapping[str, int]]) -> list[str]:
    """Return, most moved first, whose share differs between parts of the run by more than a percent and the odd row.

    ``amounts`` are by name, for every stretch of ``timeline``.
    """
    size = -(-len(timeline) // _PARTS)
    odd, shares = 0.0, []
    for first in range(0, len(timeline), size):
        part = slice(first, first + size)
        odd = max(odd, 200 / sum(sum(stretch.rows_by_objective.values()) for stretch in timeline[part]))
        total: Counter[str] = Counter()
        for each in amounts[part]:
            total.update(each)
        shares.append(percentages(total))
    spread = {}
    for name in {name for part in shares for name in part}:
        of_parts = [part.get(name, 0.0) for part in shares]
        spread[name] = max(of_parts) - min(of_parts)
    return sorted((name for name in spread if spread[name] > 1 + odd), key=lambda name: (-spread[name], name))


def _rows(stretch: Stretch) -> dict[str, int]:
    return {str(objective): rows for objective, rows in stretch.rows_by_objective.items()}


def _tokens(stretch: Stretch) -> dict[str, int]:
    return {**stretch.tokens_by_language, _OTHERS: stretch.other_tokens}


def _from_to(first: Mapping[str, int], last: Mapping[str, int], names: Sequence[str]) -> str:
    """Return ``mlm from 70 to 40 %, tlm from 30 to 60 %``."""
    before, after = percentages(first), percentages(last)
    return ", ".join(f"{name} from {before.get(name, 0):.0f} to {after.get(name, 0):.0f} %" for name in names)


def _dots(axes: Axes, points: Sequence[tuple[int, float]], hue: str) -> None:
    ranks, values = zip(*points, strict=True)
    axes.scatter(ranks, values, s=5, color=colour(hue), linewidths=0, zorder=3)


def _legend(figure: Figure, ledger: Ledger, *, with_cap: bool) -> None:
    entries = [
        (Line2D([], [], linestyle="", marker="s", markersize=6, color=colour(OBJECTIVE_HUES[name])), str(name))
        for name in ledger.objectives
    ]
    entries.append((Line2D([], [], linestyle="", marker="o", markersize=4.5, color=colour("ink")), "epochs"))
    entries.append((Line2D([], [], color=colour("muted"), linewidth=0.9, linestyle=(0, (2, 2))), "text begins to repeat"))
    if with_cap:
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
