"""Everything a report shows, read from a run folder once; drawing and writing are pure functions of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xlm.config.recipe import Recipe
from xlm.corpora.documents import split_pair_name
from xlm.corpora.manifest import Manifest
from xlm.errors import UserError
from xlm.mixing.data_plan import DataPlan
from xlm.mixing.ledger import Ledger, plan_ledger
from xlm.report.summary import join_scores, read_json
from xlm.runs.folder import RunFolder
from xlm.shards.index import INDEX_FILE, ShardIndex
from xlm.storage.store import open_store

Json = Mapping[str, Any]


@dataclass(frozen=True)
class RunFacts:
    """A run's joined scores and the tables that other stages left; an absent table is empty."""

    recipe: Recipe
    scores: Json
    corpus: Json = field(default_factory=dict)  # corpus/summary.json
    coverage: Sequence[Json] = ()  # rows of vocabulary/coverage.json
    shards: Json = field(default_factory=dict)  # shards/index.json
    metrics: Sequence[Json] = ()  # lines of train/metrics.jsonl
    manifest: Manifest | None = None
    ledger: Ledger | None = None  # what the data plan says that the run draws


def read_facts(recipe: Recipe, run: RunFolder, manifest: Manifest | None = None) -> RunFacts:
    """Read a run folder; raises UserError where a stage that the report needs has not finished."""
    coverage = read_json(run.vocabulary / "coverage.json", required=False)
    return RunFacts(
        recipe=recipe,
        scores=join_scores(recipe, run),
        corpus=read_json(run.corpus / "summary.json", required=False),
        coverage=tuple(coverage.get("languages", {}).values()),
        shards=read_json(run.shards / "index.json", required=False),
        metrics=read_json_lines(run.train / "metrics.jsonl"),
        manifest=manifest,
        ledger=read_ledger(recipe, run),
    )


def read_ledger(recipe: Recipe, run: RunFolder) -> Ledger | None:
    """Return the ledger of a run from the index of its shards, here or at their URL; None where there is none."""
    here = (run.shards / INDEX_FILE).exists()
    if not here and recipe.shards.storage is None:
        return None
    index = ShardIndex.read(open_store(None if here else recipe.shards.storage, run.shards))
    return plan_ledger(DataPlan(recipe, index), index)


def read_json_lines(path: Path) -> tuple[dict[str, Any], ...]:
    """Read one JSON object a line; a missing file has none. Raises UserError with the line of a damaged one."""
    if not path.exists():
        return ()
    rows: list[dict[str, Any]] = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                raise UserError("not a JSON object; was this file edited?", file=path, line=number) from None
    return tuple(rows)


def languages_of(scores: Json, task: str) -> dict[str, Any]:
    """Return a task's entries by language, in the order in which the recipe names them; none where it was not run."""
    entries: Json = (scores["tasks"].get(task) or {}).get("languages", {})
    order = (scores["recipe"]["values"].get("tasks") or {}).get("languages", ())
    return {language: entries[language] for language in [*order, *sorted(set(entries) - set(order))] if language in entries}


def counted(number: int, noun: str) -> str:
    """Return ``1 language`` or ``12 languages``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def losses_by_objective(metrics: Sequence[Json], prefix: str = "loss") -> dict[str, tuple[list[float], list[float]]]:
    """Return per objective the tokens seen and the loss of every logged step that has one.

    Overall losses by objective are named ``loss/<objective>``, those on held-out rows ``validation/<objective>``; a third
    part would be a language.
    """
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for row in metrics:
        for name, value in row.items():
            parts = name.split("/")
            if len(parts) == 2 and parts[0] == prefix and value is not None:
                tokens, losses = curves.setdefault(parts[1], ([], []))
                tokens.append(float(row["tokens"]))
                losses.append(float(value))
    return curves


def text_shares(shards: Json) -> dict[str, float]:
    """Return each language's share of the tokens in shards, in percent.

    The monolingual corpora hold all text of a language; where only pairs were built, both sides of a
    pair count half of its tokens.
    """
    tokens: Counter[str] = Counter()
    corpora: Json = shards.get("corpora", {})
    monolingual = {name: entry for name, entry in corpora.items() if entry["kind"] == "monolingual"}
    for name, entry in (monolingual or corpora).items():
        for language in entry["languages"] if monolingual else split_pair_name(name):
            tokens[language] += entry["tokens"] / (1 if monolingual else 2)
    return percentages(tokens)


def trained_shares(training: Json) -> dict[str, float]:
    """Return each language's share of the tokens seen in training, in percent."""
    return percentages(training.get("tokens_by_language", {}))


def percentages(counts: Mapping[str, float]) -> dict[str, float]:
    """Return counts as percentages of their sum; nothing where the sum is zero."""
    total = sum(counts.values())
    return {name: 100.0 * count / total for name, count in counts.items()} if total else {}


def dropped_by_reason(corpus: Json) -> dict[str, Counter[str]]:
    """Return ``{reason: {language: count}}`` from the corpus summary's ``dropped`` table."""
    result: dict[str, Counter[str]] = {}
    for language, sources in corpus.get("dropped", {}).items():
        for reasons in sources.values():
            for reason, count in reasons.items():
                result.setdefault(reason, Counter())[language] += count
    return result


def pairs_by_language(corpus: Json) -> Counter[str]:
    """Return how many pairs each language is a side of."""
    result: Counter[str] = Counter()
    for name, count in corpus.get("pairs", {}).items():
        for language in split_pair_name(name):
            result[language] += count
    return result
