"""English training sentences once more, with words switched into the other languages: what a dictionary adds to transfer.

After CoSDA-ML (Qin et al. 2020): each word is switched with the given rate, into a language drawn for it. The probe and
the character floor see the plain sentences and every copy; fine-tuning sees as many sentences as without, each epoch
another version of each. Only the training half of the lexicons is used, and English dev stays plain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from xlm.codeswitch.generate import SwitchedText, switch_text
from xlm.config.recipe import CodeSwitchedTraining, Recipe
from xlm.evaluation.intent_task import SOURCE_LANGUAGE, IntentTask, Sentences
from xlm.evaluation.lexicons import lexicon_record, load_lexicons
from xlm.evaluation.percent import rounded
from xlm.runs.folder import RunFolder


@dataclass(frozen=True)
class SwitchedTraining:
    """``copies[k][i]`` is training sentence i with words switched, the k-th time; ``record`` says what became of them."""

    copies: tuple[tuple[str, ...], ...]
    record: dict[str, Any]


def load_switched_training(recipe: Recipe, section: CodeSwitchedTraining, run: RunFolder, task: IntentTask) -> SwitchedTraining:
    """Switch the training sentences of ``task`` by the lexicons of the run's corpus; raises UserError for a language without pairs."""
    if recipe.tasks is None:
        raise ValueError("a task has been loaded, so the recipe has tasks")
    languages = section.languages or tuple(language for language in recipe.tasks.languages if language != SOURCE_LANGUAGE)
    lexicons = load_lexicons(run.corpus, languages, recipe.tasks.seed, "evaluation.code_switched_training")
    draws = [
        [
            switch_text(text, SOURCE_LANGUAGE, lexicons.training, section.rate, seed=recipe.tasks.seed, epoch=copy, key=key, lower=True)
            for key, text in zip(task.train.ids, task.train.texts, strict=True)
        ]
        for copy in range(1, section.copies + 1)  # epoch 0 is that of the test sentences
    ]
    return SwitchedTraining(
        tuple(tuple(draw.text for draw in copy) for copy in draws),
        {
            "rate": section.rate,
            "copies": section.copies,
            **_realised([draw for copy in draws for draw in copy]),
            "lexicon": lexicon_record(lexicons.training, lexicons.left_out, task.train.texts),
        },
    )


def with_copies(task: IntentTask, copies: Sequence[Sequence[str]]) -> IntentTask:
    """Return the task with every copy of its training sentences behind them; a seed trains on the copies of what it trained on."""
    train, times = task.train, 1 + len(copies)
    more = Sentences(
        (*train.ids, *(f"{key}:switched:{number}" for number in range(1, times) for key in train.ids)),
        (*train.texts, *(text for copy in copies for text in copy)),
        np.tile(train.labels, times),
        train.templates * times,
    )
    subsets = tuple(np.concatenate([rows + number * len(train) for number in range(times)]) for rows in task.subsets)
    return replace(task, train=more, subsets=subsets)


def _realised(draws: Sequence[SwitchedText]) -> dict[str, Any]:
    words, switched = sum(draw.words for draw in draws), sum(draw.switched for draw in draws)
    return {
        "sentences": len(draws),
        "unswitched": sum(draw.switched == 0 for draw in draws),
        "realised_share": rounded(100.0 * switched / max(1, words)),
        "mean_cmi": rounded(sum(draw.cmi for draw in draws) / max(1, len(draws))),
    }
