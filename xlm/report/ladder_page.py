"""The page of a ladder, in Markdown: means by rung, and what each rung adds, with a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xlm.report.figure_style import colour, figure_style, new_figure, standalone_svg
from xlm.report.figures import rendered

Json = Mapping[str, Any]
TITLES = {
    "probe": "frozen probe",
    "code_switched_training": "probe, switched training",
    "finetuned": "fine-tuned",
    "code_switched_finetuning": "fine-tuned, switched training",
    "character_floor": "char n-grams",
}
_HUES = {
    "probe": ("blue", "o"),
    "code_switched_training": ("purple", "s"),
    "finetuned": ("green", "D"),
    "code_switched_finetuning": ("red", "^"),
}
_SURE = 0.05


def ladder_page(results: Json) -> str:
    """Return the whole page."""
    rungs = results["rungs"]
    lines = [
        f"# Results: {results['recipe']}, rung by rung",
        "",
        f"Made by `make results` from {results['ladder']}: every rung sees {results['tokens']:,} tokens, with {len(results['seeds'])} "
        f"pretraining seeds ({', '.join(map(str, results['seeds']))}). Accuracy on intents in percent, labels in English only "
        f"([evaluation.md](evaluation.md)); means over {', '.join(results['mean_languages'])}.",
        "",
        "![means by rung](results/ladder.svg)",
        "",
        "## Means",
        "",
        *_means(rungs),
        "",
        *_beside(results["beside"]),
        *_without_dev(rungs, results["dev_languages"]),
        "## What each rung adds",
        "",
        "Gain in points with its 95 % interval: a paired bootstrap over templates, pretraining seeds resampled in the outer loop. A "
        f"language counts as clear where p < {_SURE:g} after Holm's correction over the languages of one line; lines are not corrected "
        f"for each other. With {len(results['seeds'])} seeds resampling carries {len(results['seeds']) - 1} parts in "
        f"{len(results['seeds'])} of the variance between pretrainings, so intervals are a little narrow and p-values a little small.",
        "",
        *_gains([one for one in results["comparisons"] if one["system"] == one["against_system"]], rungs),
        "",
        "## What a dictionary adds",
        "",
        "The same rung with and without code-switched copies of the English training sentences.",
        "",
        *_gains([one for one in results["comparisons"] if one["system"] != one["against_system"]], rungs),
        "",
        "## By language",
        "",
        *_languages(rungs),
        "",
    ]
    return "\n".join(lines)


def draw_ladder_means(results: Json, folder: Path) -> Path | None:
    """Write ``ladder.svg`` and ``ladder.png``: the mean of each rung and system, each pretraining seed a dot."""
    rungs = results["rungs"]
    systems = [name for name in _HUES if any(name in rung["intents"] for rung in rungs)]
    if not systems:
        return None
    with figure_style():
        figure = new_figure(0.9 + 0.5 * len(rungs))
        axes = figure.subplots()
        for offset, system in enumerate(systems):
            hue, marker = _HUES[system]
            for row, rung in enumerate(rungs):
                entry = rung["intents"].get(system)
                if entry is None:
                    continue
                height = row + 0.15 * (offset - (len(systems) - 1) / 2)
                label = TITLES[system] if row == 0 else None
                axes.plot([entry["mean"]], [height], marker=marker, markersize=6, linestyle="", color=colour(hue), label=label)
                axes.plot(entry["seeds"], [height] * len(entry["seeds"]), marker="|", markersize=7, linestyle="", color=colour(hue))
        axes.set_yticks(range(len(rungs)), [rung["title"] for rung in rungs])
        axes.invert_yaxis()
        axes.set_xlabel("intents right, % (strokes: pretraining seeds)")
        figure.legend(loc="outside upper left", ncols=2)
        top = max(rungs, key=lambda rung: rung["intents"].get(systems[0], {}).get("mean", 0.0))
        alt = f"Mean accuracy by rung; the highest {TITLES[systems[0]]} is that of {top['title']}."
        drawn = rendered("ladder", (figure, "The ladder", "Means by rung", alt))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ladder.png").write_bytes(drawn.png)
    (folder / "ladder.svg").write_text(standalone_svg(drawn.svg), encoding="utf-8")
    return folder / "ladder.svg"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def _means(rungs: Sequence[Json]) -> list[str]:
    systems = [name for name in TITLES if any(name in rung["intents"] for rung in rungs)]
    rows = []
    for rung in rungs:
        cells = [_mean_cell(rung["intents"].get(system)) for system in systems]
        rows.append(
            [
                rung["title"],
                *cells,
                _number(rung.get("retrieval")),
                *(_number(rung.get("losses", {}).get(name), 3) for name in ("mlm", "tlm")),
            ]
        )
    head = ["rung", *(TITLES[name] for name in systems), "retrieval@200", "held-out MLM loss", "held-out TLM loss"]
    return [*markdown_table(head, rows), "", "In brackets the lowest and highest mean of a pretraining seed."]


def _without_dev(rungs: Sequence[Json], dev_languages: Sequence[str]) -> list[str]:
    if not dev_languages:
        return []
    systems = [name for name in TITLES if any(name in rung["intents"] for rung in rungs)]
    rows = [[rung["title"], *(_number(rung["intents"].get(system, {}).get("without_dev")) for system in systems)] for rung in rungs]
    told = f"The same without {', '.join(dev_languages)}, at whose dev templates (never at test ones) choices of pretraining may look:"
    return [told, "", *markdown_table(["rung", *(TITLES[name] for name in systems)], rows), ""]


def _mean_cell(entry: Json | None) -> str:
    if entry is None:
        return "–"
    seeds = entry["seeds"]
    return f"{entry['mean']:.1f}" + (f" ({min(seeds):.1f}–{max(seeds):.1f})" if len(seeds) > 1 else "")


def _beside(beside: Sequence[Json]) -> list[str]:
    if not beside:
        return []
    return ["## Beside the ladder", "", "One run each, one pretraining seed.", "", *_means(beside)[:-2], ""]


def _gains(comparisons: Sequence[Json], rungs: Sequence[Json]) -> list[str]:
    titles = {rung["name"]: rung["title"] for rung in rungs}
    rows = []
    for one in comparisons:
        clear = [f"{language} {entry['gain']:+.1f}" for language, entry in one["languages"].items() if entry["p_holm"] < _SURE]
        low, high = one["mean"]["interval"]
        rows.append(
            [
                titles[one["rung"]],
                TITLES[one["system"]],
                f"{one['mean']['gain']:+.1f} [{low:.1f}, {high:.1f}]",
                ", ".join(clear) or "none",
                f"{len(clear)} of {len(one['languages'])}",
            ]
        )
    return markdown_table(["rung", "system", "mean gain [95 %]", "clear in", ""], rows)


def _languages(rungs: Sequence[Json]) -> list[str]:
    languages = list(rungs[0]["intents"]["probe"]["languages"])
    rows = []
    for rung in rungs:
        for system in TITLES:
            entry = rung["intents"].get(system)
            if entry is not None:
                rows.append([rung["title"], TITLES[system], *(_number(entry["languages"].get(language)) for language in languages)])
    return markdown_table(["rung", "system", *languages], rows)


def _number(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
