"""The systems that answer the intent task: each gives a label to every test sentence of every language, once a seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlm.config.recipe import EvaluationSection
from xlm.evaluation.finetune import Finetuned, FinetuneSettings, LabelledTexts, choose_finetuned, has_collapsed, predict
from xlm.evaluation.floors import CharacterClassifier, bag_of_embeddings, choose_character_classifiers, majority_label
from xlm.evaluation.intent_task import SOURCE_LANGUAGE, IntentTask
from xlm.evaluation.packing import TokenisedTexts, tokenise
from xlm.evaluation.percent import rounded
from xlm.evaluation.probe import Probe, choose_probes
from xlm.evaluation.readout import Features, Read, Readout, Translations, whitened
from xlm.evaluation.trained_encoder import TrainedEncoder
from xlm.model.encoder import Encoder

PROBE = "probe"
FINETUNED = "finetuned"
CHARACTER_FLOOR = "character_floor"
RANDOM_ENCODER = "random_encoder"
BAG = "bag_of_aligned_embeddings"
CHANCE = "chance"
# The same three, with code-switched copies of the English training sentences.
SWITCHED_PROBE = "code_switched_training"
SWITCHED_FINETUNED = "code_switched_finetuning"
SWITCHED_FLOOR = "code_switched_character_floor"


@dataclass(frozen=True)
class System:
    """Predicted labels [seeds, n] of each language's test set, and what was chosen on English dev.

    ``predictions`` of a system that no seed changes are [1, n]. ``dev_accuracy`` is in percent, and so is
    ``dev_sets``: the mean over seeds on dev sentences of each language that choices of pretraining may look at.
    """

    name: str
    predictions: Mapping[str, NDArray[np.int64]]
    dev_accuracy: float | None = None
    choices: Mapping[str, Any] = field(default_factory=dict)
    dev_sets: Mapping[str, float] = field(default_factory=dict)

    def collapsed_seeds(self, language: str) -> list[int]:
        """Return the positions of seeds whose predictions are nearly all one label."""
        return [position for position, row in enumerate(self.predictions[language]) if has_collapsed(row)]


@dataclass(frozen=True)
class FeatureSet:
    """Sentence vectors [choices, n, features] of English train and dev and of each test set."""

    train: Features
    dev: Features
    tests: Mapping[str, Features]
    dev_sets: Mapping[str, Features] = field(default_factory=dict)


@dataclass(frozen=True)
class Reader:
    """What turns sentences into the vectors that probes read; ``choices`` names the rows of these vectors."""

    read: Read
    choices: tuple[str, ...]
    whitened: bool = False

    def features(self, task: IntentTask) -> FeatureSet:
        """Read every set of the task."""
        return FeatureSet(
            self.read(task.train.texts, SOURCE_LANGUAGE),
            self.read(task.dev.texts, SOURCE_LANGUAGE),
            {language: self.read(test.texts, language) for language, test in task.tests.items()},
            {language: self.read(dev.texts, language) for language, dev in task.dev_sets.items()},
        )

    def with_copies(self, features: FeatureSet, copies: Sequence[Sequence[str]]) -> FeatureSet:
        """Return ``features`` of a task with those of every copy of its training sentences behind them; nothing else is read."""
        return replace(features, train=np.concatenate([features.train, *(self.read(copy, SOURCE_LANGUAGE) for copy in copies)], axis=1))


def encoder_reader(
    trained: TrainedEncoder,
    encoder: Encoder,
    readout: Readout,
    translations: Sequence[Translations] = (),
    counts: Counter[str] | None = None,
) -> Reader:
    """Read with ``encoder``, the trained one or a random twin; whitened by ``translations`` where there are any."""

    def read(texts: Sequence[str], language: str) -> Features:
        return readout.arrange(trained.encode(texts, language, readout.layers, encoder=encoder, counts=counts))

    return _reader(read, readout.names, translations)


def bag_reader(trained: TrainedEncoder, table: NDArray[np.float32], translations: Sequence[Translations] = ()) -> Reader:
    """Average the rows of ``table`` [vocabulary, width] over each sentence's pieces."""

    def read(texts: Sequence[str], language: str) -> Features:
        return bag_of_embeddings(table, tokenise(trained.vocabulary, texts, trained.config.max_positions))[None]

    return _reader(read, ("bag",), translations)


def _reader(read: Read, choices: tuple[str, ...], translations: Sequence[Translations]) -> Reader:
    return Reader(whitened(read, translations) if translations else read, choices, bool(translations))


def finetune_settings(evaluation: EvaluationSection, precision: str) -> list[FinetuneSettings]:
    """Return what the recipe says about fine-tuning, one for each learning rate."""
    return [
        FinetuneSettings(rate, evaluation.finetune_epochs, evaluation.finetune_batch_size, evaluation.freeze_token_embeddings, precision)
        for rate in evaluation.finetune_learning_rates
    ]


def probe_system(
    name: str, task: IntentTask, feature_sets: Sequence[FeatureSet], reader: Reader, penalties: Sequence[float]
) -> tuple[System, list[Probe], int]:
    """Fit one probe a seed on ``feature_sets`` (one a seed) and label every test set; returns also the chosen row of the vectors."""
    choice, probes = choose_probes(
        [features.train for features in feature_sets],
        [features.dev for features in feature_sets],
        task.train.labels,
        task.dev.labels,
        task.dev.templates,
        task.subsets,
        penalties,
        one_deviation=reader.whitened,
    )
    pairs = list(zip(probes, feature_sets, strict=True))
    predictions = {
        language: np.stack([probe.predict(features.tests[language][choice.layer]) for probe, features in pairs]) for language in task.tests
    }
    choices = {"penalty": choice.penalty, "layer": reader.choices[choice.layer]}
    dev_sets = {
        language: 100.0
        * float(np.mean([np.mean(probe.predict(features.dev_sets[language][choice.layer]) == dev.labels) for probe, features in pairs]))
        for language, dev in task.dev_sets.items()
    }
    return System(name, predictions, 100.0 * choice.dev_accuracy, choices, dev_sets), probes, choice.layer


def finetuned_system(
    trained: TrainedEncoder,
    task: IntentTask,
    evaluation: EvaluationSection,
    after_epoch: Callable[[], None] = lambda: None,
    *,
    name: str = FINETUNED,
    copies: Sequence[Sequence[str]] = (),
) -> tuple[System, list[Finetuned]]:
    """Fine-tune on English once a seed and label every test set; ``copies`` of the training sentences take turns with them."""

    def texts(values: Sequence[str]) -> TokenisedTexts:
        return tokenise(trained.vocabulary, values, trained.config.max_positions)

    choice, runs = choose_finetuned(
        trained.encoder,
        LabelledTexts(texts(task.train.texts), task.train.labels, tuple(map(texts, copies))),
        LabelledTexts(texts(task.dev.texts), task.dev.labels),
        task.subsets,
        task.seeds,
        finetune_settings(evaluation, trained.precision),
        label_count=len(task.labels),
        language=trained.language_id(SOURCE_LANGUAGE),
        after_epoch=after_epoch,
    )
    predictions = {}
    for language, test in task.tests.items():
        tokenised, language_id = texts(test.texts), trained.language_id(language)
        predictions[language] = np.stack(
            [predict(run.classifier, tokenised, language=language_id, precision=trained.precision) for run in runs]
        )
    choices = {"learning_rate": choice.learning_rate, "epochs": dict(zip(map(str, task.seeds), choice.epochs, strict=True))}
    return System(name, predictions, 100.0 * choice.dev_accuracy, choices), runs


def character_system(task: IntentTask, name: str = CHARACTER_FLOOR) -> tuple[System, list[CharacterClassifier]]:
    """Train the character n-gram floor once a seed and label every test set."""
    choice, classifiers = choose_character_classifiers(task.train.texts, task.dev.texts, task.train.labels, task.dev.labels, task.subsets)
    predictions = {
        language: np.stack([classifier.predict(test.texts) for classifier in classifiers]) for language, test in task.tests.items()
    }
    return System(name, predictions, 100.0 * choice.dev_accuracy, {"penalty": choice.penalty}), classifiers


def chance_system(task: IntentTask) -> System:
    """Give every sentence the most frequent label of English training data."""
    label = majority_label(task.train.labels)
    predictions = {language: np.full((1, len(test)), label, dtype=np.int64) for language, test in task.tests.items()}
    dev_accuracy = 100.0 * float(np.mean(task.dev.labels == label))
    return System(CHANCE, predictions, dev_accuracy, {"label": task.labels[label], "uniform_accuracy": rounded(100.0 / len(task.labels))})
