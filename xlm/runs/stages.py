"""The stages of a recipe in the order data flows: which script runs each, and what it leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xlm.errors import UserError, suggest
from xlm.runs.cli import Invocation


@dataclass(frozen=True)
class Step:
    """One stage: the script that runs it, the folder it leaves, and what a reader calls it."""

    script: str
    folder: Path
    title: str
    needs_tasks: bool = False
    launched: bool = False


def planned_steps(invocation: Invocation) -> list[Step]:
    """Return the stages of a recipe in the order data flows; without tasks nothing is scored."""
    run = invocation.folder
    steps = [
        Step("build_tasks.py", run.tasks, "evaluation sets: fetch and read text, set tests aside", needs_tasks=True),
        Step("build_corpus.py", run.corpus, "corpus: clean and deduplicate"),
        Step("build_vocab.py", run.vocabulary, "vocabulary: one for all languages"),
        Step("build_shards.py", run.shards, "shards: tokens and row plans"),
        Step("init_embeddings.py", run.embeddings, "embeddings: an aligned start"),
        Step("pretrain.py", run.train, "pretraining", launched=True),
        Step("zero_shot.py", run.zero_shot, "zero-shot scores: labels in English only", needs_tasks=True),
        Step("code_switching.py", run.code_switching, "code-switching scores", needs_tasks=True),
        Step("report.py", run.figures, "report"),
    ]
    if invocation.recipe.embeddings.kind != "aligned":
        steps = [step for step in steps if step.folder != run.embeddings]
    return [step for step in steps if invocation.recipe.tasks is not None or not step.needs_tasks]


def steps_until(steps: Sequence[Step], last: str | None) -> list[Step]:
    """Return the stages up to the script named; a UserError lists the scripts there are."""
    names = [step.script for step in steps]
    if last is None:
        return list(steps)
    if last not in names:
        raise UserError(f"--until '{last}' is no stage of this recipe{suggest(last, names)}; there are: {', '.join(names)}.")
    return list(steps[: names.index(last) + 1])
