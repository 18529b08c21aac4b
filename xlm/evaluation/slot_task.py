"""Slot tagging as the zero-shot protocol sees it: the sentences of the intent task, a BIO tag for each of their words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xlm.codeswitch.tokens import tokenise
from xlm.errors import UserError
from xlm.evaluation.intent_task import SOURCE_LANGUAGE, IntentTask, Sentences
from xlm.tasks.evaluation_sets import INTENTS, load_labelled
from xlm.tasks.slots import OUTSIDE, slot_names


@dataclass(frozen=True)
class TaggedSentences:
    """n sentences; ``tags[i]`` has one tag a word of ``texts[i]``."""

    texts: tuple[str, ...]
    tags: tuple[tuple[str, ...], ...]
    templates: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class SlotTask:
    """English train and dev, and the test set of each language.

    ``tags``: every tag of the training data, ``O`` first. ``unknown``: for each language the slots that training data
    lacks, with the number of test sentences that have them; nothing can name those, so they are left out of the score. A
    language in which no slot is left is not among ``tests``.
    ``subsets``: the training sentences of each seed, those that the intent task trains on.
    """

    tags: tuple[str, ...]
    train: TaggedSentences
    dev: TaggedSentences
    tests: dict[str, TaggedSentences]
    unknown: dict[str, dict[str, int]]
    seeds: tuple[int, ...]
    subsets: tuple[NDArray[np.int64], ...]

    def labels(self, tags: Sequence[str]) -> NDArray[np.int64]:
        """Return the index of each tag; one that training data lacks ("I-" of a slot of one word there) counts as ``O``."""
        index = {tag: number for number, tag in enumerate(self.tags)}
        return np.array([index.get(tag, 0) for tag in tags], dtype=np.int64)


def load_slot_task(folder: Path, intents: IntentTask) -> SlotTask | None:
    """Read the tags of the sentences of ``intents``; None where English training data has no slot at all, or nothing is left to score.

    Raises UserError for tags that do not fit their sentence.
    """
    tags_of = {
        language: {sentence.id: tuple(sentence.tags.split()) for sentence in load_labelled(folder, INTENTS, language)}
        for language in intents.tests
    }
    english = tags_of[SOURCE_LANGUAGE]
    train = _tagged(intents.train, english)
    known = {tag for tags in train.tags for tag in tags}
    if known <= {OUTSIDE}:
        return None
    tests, unknown = {}, {}
    for language, sentences in intents.tests.items():
        kept, unknown[language] = _known_only(_tagged(sentences, tags_of[language]), slot_names(known))
        if any(slot_names(tags) for tags in kept.tags):
            tests[language] = kept
    dev, _ = _known_only(_tagged(intents.dev, english), slot_names(known))
    if not len(dev) or not tests:
        return None
    names = tuple(sorted(known - {OUTSIDE}))
    return SlotTask((OUTSIDE, *names), train, dev, tests, unknown, intents.seeds, intents.subsets)


def _tagged(sentences: Sentences, tags_of: dict[str, tuple[str, ...]]) -> TaggedSentences:
    found = TaggedSentences(sentences.texts, tuple(tags_of[name] for name in sentences.ids), sentences.templates)
    for name, text, tags in zip(sentences.ids, found.texts, found.tags, strict=True):
        if tags and len(tags) != len(tokenise(text)):
            raise UserError(f"sentence {name} has {len(tags)} tags for {len(tokenise(text))} words; build the tasks again.")
    return found


def _known_only(sentences: TaggedSentences, known: set[str]) -> tuple[TaggedSentences, dict[str, int]]:
    lacking = [sorted(slot_names(tags) - known) for tags in sentences.tags]
    rows = [row for row, names in enumerate(lacking) if not names]
    kept = TaggedSentences(
        tuple(sentences.texts[row] for row in rows),
        tuple(sentences.tags[row] for row in rows),
        tuple(sentences.templates[row] for row in rows),
    )
    return kept, dict(sorted(Counter(name for names in lacking for name in names).items()))
