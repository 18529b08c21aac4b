"""A ledger in words: what is printed before a run, the files that hold every number, and the tables of the report."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from xlm.mixing.ledger import Ledger
from xlm.report.tables import ABSENT, Table

# Of more lines than this, the largest and the smallest are printed.
MOST_LINES = 40
_TAIL_LINES = 10
_STEPS = ("cap", "repeats from step", "capped from step")


def ledger_json(ledger: Ledger) -> dict[str, Any]:
    """Return a ledger as JSON."""
    return asdict(ledger)


def ledger_files(ledger: Ledger) -> dict[str, str]:
    """Return the tables with every line, as CSV by file name."""
    entries = [asdict(entry) | {"languages": " ".join(entry.languages)} for entry in ledger.entries]
    corpora = [asdict(total) | {"languages": " ".join(total.languages)} for total in ledger.corpora]
    languages = []
    for total in ledger.languages:
        line = asdict(total)
        by_objective = line.pop("tokens_by_objective")
        languages.append(line | {f"tokens_{objective}": by_objective.get(objective, 0) for objective in ledger.objectives})
    return {"phases.csv": _csv(entries), "corpora.csv": _csv(corpora), "languages.csv": _csv(languages)}


def ledger_lines(ledger: Ledger) -> Iterator[str]:
    """Yield the lines of a ledger for a terminal: by phase and objective, by corpus, by language."""
    yield from _objective_lines(ledger)
    yield ""
    yield from _corpus_lines(ledger)
    yield ""
    languages = [
        (
            total.language,
            f"{total.tokens:,}",
            *(f"{total.tokens_by_objective.get(objective, 0):,}" for objective in ledger.objectives),
            f"{total.epochs:.3f}",
            _number(total.max_epochs),
            _step(total.repeats_from),
            _step(total.capped_from),
        )
        for total in ledger.languages
    ]
    columns = ("language", "tokens", *ledger.objectives, "epochs", *_STEPS)
    yield from _aligned(columns, languages, words=1)


def _objective_lines(ledger: Ledger) -> Iterator[str]:
    sums: dict[tuple[str, str], Counter[str]] = {}
    for entry in ledger.entries:
        for phase in (entry.phase, "all phases"):
            of_cell = sums.setdefault((phase, entry.objective), Counter())
            of_cell.update({"rows": entry.rows, "tokens": entry.tokens, "positions": entry.positions})
    by_phase: Counter[str] = Counter()
    for (phase, _), counts in sums.items():
        by_phase[phase] += counts["rows"]
    order = {phase: number for number, phase in enumerate(dict.fromkeys([*(entry.phase for entry in ledger.entries), "all phases"]))}
    rows = [
        (
            phase,
            objective,
            f"{counts['rows']:,}",
            f"{counts['tokens']:,}",
            f"{counts['positions']:,}",
            f"{counts['rows'] / by_phase[phase]:.3%}",
        )
        for (phase, objective), counts in sorted(sums.items(), key=lambda item: (order[item[0][0]], item[0][1]))
    ]
    columns = ("phase", "objective", "rows", "tokens", "positions", "share")
    yield from _aligned(columns, rows, words=2)


def _corpus_lines(ledger: Ledger) -> Iterator[str]:
    all_rows = sum(total.rows for total in ledger.corpora)
    by_phase = {(entry.phase, entry.objective, entry.corpus): entry.rows for entry in ledger.entries}
    phases = list(dict.fromkeys(entry.phase for entry in ledger.entries))
    rows = [
        (
            total.corpus,
            total.objective,
            f"{total.rows:,}",
            f"{total.tokens:,}",
            f"{total.rows / all_rows:.3%}",
            f"{total.epochs:.3f}",
            _number(total.max_epochs),
            _step(total.repeats_from),
            _step(total.capped_from),
            *(f"{by_phase.get((phase, total.objective, total.corpus), 0):,}" for phase in phases if len(phases) > 1),
        )
        for total in sorted(ledger.corpora, key=lambda total: -total.tokens)
    ]
    columns = ("corpus", "objective", "rows", "tokens", "share", "epochs", *_STEPS)
    yield from _aligned((*columns, *(f"rows in '{phase}'" for phase in phases if len(phases) > 1)), rows, words=2)


def ledger_table(ledger: Ledger | None, seen: Mapping[str, float]) -> Table | None:
    """Return the report's table: planned against realised (tokens ``seen`` by language) for every language, or the largest."""
    if ledger is None:
        return None
    total_planned = sum(total.positions for total in ledger.languages)
    total_seen = sum(seen.values())
    rows = tuple(
        (
            total.language,
            f"{total.tokens:,}",
            f"{total.positions:,}",
            f"{seen[total.language]:,.0f}" if total.language in seen else ABSENT,
            f"{100 * total.positions / total_planned:.2f}",
            f"{100 * seen.get(total.language, 0) / total_seen:.2f}" if total_seen else ABSENT,
            f"{total.epochs:.2f}",
            _step(total.repeats_from),
            _step(total.capped_from),
        )
        for total in ledger.languages[:MOST_LINES]
    )
    columns = (
        "language",
        "tokens of text planned",
        "with special pieces",
        "tokens seen",
        "% planned",
        "% seen",
        "times seen",
        "repeats from step",
        "capped from step",
    )
    note = (
        "The plan counts half of a pair for either side, training each side as it is. "
        "Times seen: by the objective that sees a language most often; steps: of the first corpus that comes to it."
    )
    if len(ledger.languages) > MOST_LINES:
        note += f" The {MOST_LINES} largest of {len(ledger.languages):,}; pipelines/plan.py writes them all."
    return Table("Planned and seen, by language", columns, rows, note)


def phase_table(ledger: Ledger | None, seen: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Table | None:
    """Return the report's table of rows and tokens planned and ``seen``, by phase and objective, as in the training's summary."""
    if ledger is None:
        return None
    planned: dict[tuple[str, str], Counter[str]] = {}
    for entry in ledger.entries:
        planned.setdefault((entry.phase, entry.objective), Counter()).update({"rows": entry.rows, "tokens": entry.positions})
    rows = []
    for (phase, objective), counts in planned.items():
        of_cell = seen.get(phase, {}).get(objective, {})
        cells = [(f"{counts[name]:,}", f"{of_cell[name]:,}" if name in of_cell else ABSENT) for name in ("rows", "tokens")]
        rows.append((f"{phase}: {objective}", *cells[0], *cells[1]))
    columns = ("phase and objective", "rows planned", "rows seen", "tokens planned", "tokens seen")
    note = (
        "Seen is what training counted in its batches; a run in which the rows differ from the plan ends with an error. "
        "Tokens are with special pieces; the plan counts as many a row as the rows of a corpus hold on average."
    )
    return Table("Planned and seen, by phase and objective", columns, tuple(rows), note)


def _aligned(columns: Sequence[str], rows: Sequence[Sequence[str]], *, words: int) -> Iterator[str]:
    """Yield a table with its first ``words`` columns on the left; of many rows the first and the last."""
    left_out = len(rows) - MOST_LINES
    shown = list(rows) if left_out <= 0 else [*rows[: MOST_LINES - _TAIL_LINES], *rows[-_TAIL_LINES:]]
    widths = [max(map(len, column)) for column in zip(columns, *shown, strict=True)]
    for number, row in enumerate([columns, *shown]):
        if left_out > 0 and number == MOST_LINES - _TAIL_LINES + 1:
            yield f"... {left_out:,} more ..."
        cells = (
            cell.ljust(width) if place < words else cell.rjust(width) for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _number(value: float | None) -> str:
    return ABSENT if value is None else f"{value:g}"


def _step(step: int | None) -> str:
    return ABSENT if step is None else f"{step:,}"
