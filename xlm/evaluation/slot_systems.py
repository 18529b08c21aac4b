"""The systems that tag slots: each gives a tag to every word of every test set, once a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlm.codeswitch.tokens import tokenise as tokenise_words
from xlm.config.recipe import EvaluationSection
from xlm.evaluation.finetune import LabelledWords, choose_finetuned, predict
from xlm.evaluation.floors import ContextVectoriser, choose_character_classifiers
from xlm.evaluation.intent_systems import CHARACTER_FLOOR, FINETUNED, PROBE, RANDOM_ENCODER, finetune_settings
from xlm.evaluation.intent_task import SOURCE_LANGUAGE
from xlm.evaluation.probe import Labels, choose_probes
from xlm.evaluation.readout import Readout
from xlm.evaluation.slot_task import SlotTask, TaggedSentences
from xlm.evaluation.trained_encoder import TrainedEncoder, random_twin
from xlm.evaluation.words import WordTexts, encode_words, locate_words, word_rows
from xlm.model.encoder import Encoder

Features = NDArray[np.float32]  # [layers, words, width]


@dataclass(frozen=True)
class TagSystem:
    """Predicted tags of each language's test set: by seed, by sentence; and what was chosen on English dev."""

    name: str
    predictions: dict[str, list[list[tuple[str, ...]]]]
    dev_accuracy: float
    choices: dict[str, Any] = field(default_factory=dict)


class SlotSystems:
    """Everything the systems share: the task in pieces of the encoder's vocabulary, and its labels."""

    def __init__(self, trained: TrainedEncoder, task: SlotTask, evaluation: EvaluationSection) -> None:
        self._trained, self._task, self._evaluation = trained, task, evaluation
        self._train, self._dev = self._located(task.train), self._located(task.dev)
        self._tests = {language: self._located(test) for language, test in task.tests.items()}
        self._by_sentence = {
            name: tuple(task.labels(tags) for tags in sentences.tags) for name, sentences in (("train", task.train), ("dev", task.dev))
        }
        self._labels = {name: np.concatenate(labels) for name, labels in self._by_sentence.items()}
        self._dev_templates = [template for template, tags in zip(task.dev.templates, task.dev.tags, strict=True) for _ in tags]
        ends = np.cumsum([len(tags) for tags in task.train.tags])
        self._rows = [word_rows(ends, subset) for subset in task.subsets]

    def probe(self, readout: Readout) -> TagSystem:
        """Fit a linear classifier on the frozen states of words, once a seed."""
        return self._probe(PROBE, [self._trained.encoder] * len(self._task.seeds), readout)

    def random_encoder(self, readout: Readout) -> TagSystem:
        """Fit the same on encoders with random weights, another one for each seed."""
        return self._probe(RANDOM_ENCODER, [random_twin(self._trained, seed) for seed in self._task.seeds], readout)

    def finetuned(self, after_epoch: Callable[[], None] = lambda: None) -> TagSystem:
        """Fine-tune the encoder on English once a seed."""
        evaluation, trained = self._evaluation, self._trained
        choice, runs = choose_finetuned(
            trained.encoder,
            LabelledWords(self._train.tokenised, self._by_sentence["train"]),
            LabelledWords(self._dev.tokenised, self._by_sentence["dev"]),
            self._task.subsets,
            self._task.seeds,
            finetune_settings(evaluation, trained.precision),
            label_count=len(self._task.tags),
            language=trained.language_id(SOURCE_LANGUAGE),
            after_epoch=after_epoch,
        )
        predictions = {}
        for language, located in self._tests.items():
            rows = [
                predict(run.classifier, located.tokenised, language=trained.language_id(language), precision=trained.precision)
                for run in runs
            ]
            predictions[language] = [self._sentences(language, labels, located) for labels in rows]
        choices = {"learning_rate": choice.learning_rate, "epochs": dict(zip(map(str, self._task.seeds), choice.epochs, strict=True))}
        return TagSystem(FINETUNED, predictions, 100.0 * choice.dev_accuracy, choices)

    def character_floor(self) -> TagSystem:
        """Train the character n-grams of a word and its neighbours, once a seed."""
        choice, classifiers = choose_character_classifiers(
            contexts(self._task.train.texts),
            contexts(self._task.dev.texts),
            self._labels["train"],
            self._labels["dev"],
            self._rows,
            vectoriser=ContextVectoriser,
            seeds_to_choose=1,
        )
        predictions = {
            language: [self._sentences(language, classifier.predict(contexts(test.texts))) for classifier in classifiers]
            for language, test in self._task.tests.items()
        }
        return TagSystem(CHARACTER_FLOOR, predictions, 100.0 * choice.dev_accuracy, {"penalty": choice.penalty})

    def _probe(self, name: str, encoders: Sequence[Encoder], readout: Readout) -> TagSystem:
        def features(located: WordTexts, language: str) -> list[Features]:
            index, precision = self._trained.language_id(language), self._trained.precision
            distinct = {id(encoder): encoder for encoder in encoders}
            found = {
                key: readout.arrange(encode_words(encoder, located.tokenised, readout.layers, language=index, precision=precision))
                for key, encoder in distinct.items()
            }
            return [found[id(encoder)] for encoder in encoders]

        train, dev = features(self._train, SOURCE_LANGUAGE), features(self._dev, SOURCE_LANGUAGE)
        labels = self._labels
        choice, probes = choose_probes(
            train, dev, labels["train"], labels["dev"], self._dev_templates, self._rows, self._evaluation.probe_penalties
        )
        predictions = {}
        for language, located in self._tests.items():
            vectors = features(located, language)
            rows = [probe.predict(own[choice.layer]) for probe, own in zip(probes, vectors, strict=True)]
            predictions[language] = [self._sentences(language, found, located) for found in rows]
        choices = {"penalty": choice.penalty, "layer": readout.names[choice.layer]}
        return TagSystem(name, predictions, 100.0 * choice.dev_accuracy, choices)

    def _located(self, sentences: TaggedSentences) -> WordTexts:
        return locate_words(self._trained.vocabulary, sentences.texts, self._trained.config.max_positions)

    def _sentences(self, language: str, labels: Labels, located: WordTexts | None = None) -> list[tuple[str, ...]]:
        """Cut the tags of all words into sentences; a word inside the piece of the word before continues its slot."""
        ends = np.cumsum([len(tags) for tags in self._task.tests[language].tags])
        found = []
        for number, part in enumerate(np.split(labels, ends[:-1])):
            tags = [self._task.tags[label] for label in part]
            if located is not None:
                for word in np.flatnonzero(located.continued[number]):
                    before = tags[word - 1]
                    tags[word] = f"I-{before[2:]}" if before.startswith("B-") else before
            found.append(tuple(tags))
        return found


def contexts(texts: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return each word of ``texts`` between the word before and the word after it, empty at the ends."""
    found = []
    for text in texts:
        words = ["", *(text[token.start : token.end] for token in tokenise_words(text)), ""]
        found += list(zip(words, words[1:], words[2:], strict=False))
    return found
