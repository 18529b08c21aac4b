"""What the runs of a ladder scored, and what each rung adds, for its page and for ``results.json`` (docs/formats.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from xlm.config.ladder import Ladder, cell_name
from xlm.config.recipe import Recipe
from xlm.evaluation.intent_systems import CHARACTER_FLOOR, FINETUNED, PROBE, SWITCHED_FINETUNED, SWITCHED_PROBE
from xlm.evaluation.ladder import Answers, compare_rungs, rung_scores
from xlm.mixing.steps import Steps
from xlm.runs.folder import RunFolder

SYSTEMS = (PROBE, SWITCHED_PROBE, FINETUNED, SWITCHED_FINETUNED)
DICTIONARY = ((SWITCHED_PROBE, PROBE), (SWITCHED_FINETUNED, FINETUNED))


def read_results(ladder: Ladder, path: Path, runs: Mapping[str, RunFolder], recipe: Recipe) -> dict[str, Any]:
    """Return the scores of every rung and every comparison; ``recipe`` is the first rung's, whose questions are asked of all."""
    means, samples = recipe.evaluation.mean_languages, recipe.evaluation.bootstrap_samples
    dev = [language for language in recipe.evaluation.dev_languages if language in means]
    rung_runs = {rung.name: [runs[cell_name(rung, seed)] for seed in ladder.seeds] for rung in ladder.rungs}
    answers = {name: Answers([run.zero_shot for run in found]) for name, found in rung_runs.items()}
    titles = {rung.name: rung.title for rung in ladder.rungs}
    beside = []
    for one in ladder.beside:
        found = [runs[one.name]]
        beside.append(described(one.name, one.title, found, Answers([run.zero_shot for run in found]), means, dev))
    return {
        "recipe": recipe.name,
        "ladder": str(path),
        "tokens": sum(rows * length for rows, length in rows_by_length(recipe)),
        "seeds": list(ladder.seeds),
        "mean_languages": list(means),
        "dev_languages": dev,
        "rungs": [described(name, titles[name], found, answers[name], means, dev) for name, found in rung_runs.items()],
        "beside": beside,
        "comparisons": compare_rungs(answers, SYSTEMS, DICTIONARY, means, samples=samples),
    }


def rows_by_length(recipe: Recipe) -> list[tuple[int, int]]:
    """Return how many rows of which length each phase draws, batch warm-up counted."""
    steps = Steps.of(recipe)
    return [(stop - first, length) for (first, stop), length in zip(pairwise(steps.first_rows), steps.lengths, strict=True)]


def described(name: str, title: str, runs: list[RunFolder], answers: Answers, means: Sequence[str], dev: Sequence[str]) -> dict[str, Any]:
    """Return what one rung scored, means over its runs."""
    scores = [json.loads((run.root / "scores.json").read_text(encoding="utf-8")) for run in runs]

    def mean(values: list[float | None]) -> float | None:
        present = [value for value in values if value is not None]
        return sum(present) / len(present) if present else None

    validations = [score["training"].get("validation", {}) for score in scores]
    return {
        "name": name,
        "title": title,
        "intents": rung_scores(answers, (*SYSTEMS, CHARACTER_FLOOR), means, dev),
        "retrieval": mean([score["summary"].get("retrieval.top1_200") for score in scores]),
        "losses": {name: mean([found.get(f"validation/{name}") for found in validations]) for name in ("mlm", "tlm")},
    }
