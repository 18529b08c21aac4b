"""Intent classification as the zero-shot protocol sees it: English to learn from, every language to be scored on.

A seed stands for a training set: seed s trains on its own 90 % of the English training templates (at
least one template of every label), and every system, floors included, trains on the same sentences for
the same seed. So a difference between two systems is paired within a seed, and the spread over seeds is
what another draw of English templates would have changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xlm.errors import UserError
from xlm.seeding import keyed_generator
from xlm.tasks.evaluation_sets import INTENTS, LabelledText, load_labelled

SOURCE_LANGUAGE = "en"
TRAINING_SHARE = 0.9
SEEDS_TEXT = (
    "a seed decides which 90 % of the English training templates every system trains on (at least one template a label), "
    "and for fine-tuning also the classifier's first weights, the order of the batches and the dropout; "
    "one pretrained model, so seeds say nothing about another pretraining run"
)


@dataclass(frozen=True)
class Sentences:
    """n labelled sentences; ``labels`` [n] int64 index the task's label names."""

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    labels: NDArray[np.int64]
    templates: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class IntentTask:
    """English train and dev, the test set of each language, and the training rows of each seed.

    ``unanswerable``: for each language its test sentences whose label English training data lacks, by
    label; no classifier can name it, so they are left out of the score. ``unanswerable_dev``: the same of
    English dev. ``dev_sets``: dev sentences of the languages that choices of pretraining may look at.
    """

    labels: tuple[str, ...]
    train: Sentences
    dev: Sentences
    tests: dict[str, Sentences]
    unanswerable: dict[str, dict[str, int]]
    unanswerable_dev: dict[str, int]
    seeds: tuple[int, ...]
    subsets: tuple[NDArray[np.int64], ...]
    dev_sets: dict[str, Sentences] = field(default_factory=dict)


def load_intent_task(
    folder: Path, languages: Sequence[str], seeds: Sequence[int], task: str = INTENTS, dev_languages: Sequence[str] = ()
) -> IntentTask:
    """Read the sets of the intents, or of another ``task`` of labelled texts, for the zero-shot protocol.

    Without ``languages`` no test sentence is read, only training and dev.

    Raises UserError where English is missing from ``languages``, has no training or dev sentences, or a
    language has no test sentence that can be scored.
    """
    if languages and SOURCE_LANGUAGE not in languages:
        raise UserError(
            f"the zero-shot protocol trains on English, but tasks.languages is {', '.join(languages)}; add '{SOURCE_LANGUAGE}'."
        )
    english = load_labelled(folder, task, SOURCE_LANGUAGE)
    labels = tuple(sorted({sentence.label for sentence in english if sentence.split == "train"}))
    train, _ = _select(english, "train", labels)
    dev, unanswerable_dev = _select(english, "dev", labels)
    if not len(train) or not len(dev):
        raise UserError(
            f"English has {len(train)} training and {len(dev)} dev sentences; both are needed to train and to choose. "
            "Change tasks.intents.dev_share or test_share and build the tasks again.",
            file=folder,
        )
    tests: dict[str, Sentences] = {}
    unanswerable: dict[str, dict[str, int]] = {}
    for language in languages:
        sentences = english if language == SOURCE_LANGUAGE else load_labelled(folder, task, language)
        tests[language], unanswerable[language] = _select(sentences, "test", labels)
        if not len(tests[language]):
            raise UserError(
                f"'{language}' has no test sentence with a label of the English training data; take it out of tasks.languages.",
                file=folder,
            )
    dev_sets = {language: _select(load_labelled(folder, task, language), "dev", labels)[0] for language in dev_languages}
    empty = [language for language, sentences in dev_sets.items() if not len(sentences)]
    if empty:
        raise UserError(
            f"evaluation.dev_languages names '{empty[0]}', which has no dev sentence with a label of the English training data; "
            "take it out, or give it more by tasks.intents.dev_share.",
            file=folder,
        )
    subsets = tuple(training_subset(train.templates, train.labels, seed) for seed in seeds)
    return IntentTask(labels, train, dev, tests, unanswerable, unanswerable_dev, tuple(seeds), subsets, dev_sets)


def training_subset(templates: Sequence[str], labels: NDArray[np.int64], seed: int, share: float = TRAINING_SHARE) -> NDArray[np.int64]:
    """Return the rows (ascending) of a random ``share`` of the templates, every label kept alive by at least one template."""
    names, group = np.unique(np.asarray(templates, dtype=str), return_inverse=True)
    shuffled = keyed_generator("training-templates", seed).permutation(len(names))
    kept = np.zeros(len(names), dtype=bool)
    kept[shuffled[: max(1, round(share * len(names)))]] = True
    alive = set(labels[kept[group]].tolist())
    for template in shuffled:
        if not kept[template]:
            lacking = set(labels[group == template].tolist()) - alive
            kept[template] = bool(lacking)
            alive |= lacking
    return np.flatnonzero(kept[group])


def _select(sentences: Sequence[LabelledText], split: str, labels: Sequence[str]) -> tuple[Sentences, dict[str, int]]:
    index = {label: number for number, label in enumerate(labels)}
    chosen = [sentence for sentence in sentences if sentence.split == split]
    unknown = Counter(sentence.label for sentence in chosen if sentence.label not in index)
    known = [sentence for sentence in chosen if sentence.label in index]
    return (
        Sentences(
            tuple(sentence.id for sentence in known),
            tuple(sentence.text for sentence in known),
            np.array([index[sentence.label] for sentence in known], dtype=np.int64),
            tuple(sentence.template for sentence in known),
        ),
        dict(sorted(unknown.items())),
    )
