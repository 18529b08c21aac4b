"""From predictions to scores: accuracy and macro-F1 by language and seed, intervals, and differences to the floors.

Everything leaves this file in percent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlm.evaluation.intent_systems import (
    BAG,
    CHANCE,
    CHARACTER_FLOOR,
    FINETUNED,
    PROBE,
    RANDOM_ENCODER,
    SWITCHED_FINETUNED,
    SWITCHED_FLOOR,
    SWITCHED_PROBE,
    System,
)
from xlm.evaluation.intent_task import IntentTask, Sentences
from xlm.evaluation.percent import percent_interval, rounded
from xlm.evaluation.statistics import Floats, TemplateBootstrap
from xlm.tasks.evaluation_sets import INTENTS
from xlm.tasks.metrics import macro_f1

# (system, floor) pairs whose difference is reported where both were run.
DIFFERENCES = (
    (PROBE, CHARACTER_FLOOR),
    (PROBE, RANDOM_ENCODER),
    (PROBE, BAG),
    (FINETUNED, CHARACTER_FLOOR),
    (FINETUNED, RANDOM_ENCODER),
    (SWITCHED_PROBE, PROBE),
    (SWITCHED_PROBE, CHARACTER_FLOOR),
    (SWITCHED_PROBE, SWITCHED_FLOOR),
    (SWITCHED_FINETUNED, FINETUNED),
    (SWITCHED_FINETUNED, SWITCHED_FLOOR),
)


class IntentScores:
    """Scores of several systems on the intent task.

    ``mean_languages`` are those that the summary's means run over; every other language is shown beside them.
    """

    def __init__(
        self,
        task: IntentTask,
        systems: Sequence[System],
        *,
        bootstrap_samples: int,
        mean_languages: Sequence[str],
        shown_only: Sequence[str] = (),
        dev_languages: Sequence[str] = (),
        name: str = INTENTS,
    ) -> None:
        self._name = name
        self._task = task
        self._systems = {system.name: system for system in systems}
        self._shown_only = frozenset(shown_only)
        self._mean_languages = tuple(mean_languages)
        self._dev_languages = frozenset(dev_languages)
        self._bootstraps = {
            language: TemplateBootstrap(
                test.templates,
                seeds=len(task.seeds),
                samples=bootstrap_samples,
                key=(name, language),
                seed_key=(name, len(task.seeds)),
            )
            for language, test in task.tests.items()
        }

    def by_language(self) -> dict[str, Any]:
        """Return the ``intents.languages`` part of a score file."""
        return {language: self._language(language, test) for language, test in self._task.tests.items()}

    def means(self) -> dict[str, float]:
        """Return each system's accuracy averaged over the mean languages, as ``intents.<system>`` (or by another task's name).

        Where choices of pretraining looked at dev languages, also without these, as ``intents.<system>.without_dev``.
        """
        others = [language for language in self._mean_languages if language not in self._dev_languages]
        kinds = {"": self._mean_languages} | ({".without_dev": others} if len(others) < len(self._mean_languages) else {})
        return {
            f"{self._name}.{name}{suffix}": rounded(np.mean([100.0 * self._correct(name, language).mean() for language in languages]))
            for name in self._systems
            for suffix, languages in kinds.items()
            if languages
        }

    def mean_differences(self) -> dict[str, Any]:
        """Return gains averaged over the mean languages; seeds are drawn alike in all of them, templates each for itself."""
        if not self._mean_languages:
            return {}
        table = {}
        for system, floor in self._pairs():
            distributions = [
                self._bootstraps[language].distribution(self._difference(system, floor, language)) for language in self._mean_languages
            ]
            gains = [self._difference(system, floor, language).mean() for language in self._mean_languages]
            table[f"{system}-{floor}"] = _gain(float(np.mean(gains)), np.mean(distributions, axis=0))
        return table

    def collapsed(self) -> dict[str, dict[str, list[int]]]:
        """Return for each trained system the languages in which a seed's answers are nearly all one label."""
        table: dict[str, dict[str, list[int]]] = {}
        for name, system in self._systems.items():
            if name == CHANCE:  # which is one label by definition
                continue
            seeds = {
                language: [self._task.seeds[position] for position in system.collapsed_seeds(language)] for language in self._task.tests
            }
            if any(seeds.values()):
                table[name] = {language: found for language, found in seeds.items() if found}
        return table

    def _language(self, language: str, test: Sentences) -> dict[str, Any]:
        bootstrap = self._bootstraps[language]
        return {
            "sentences": len(test),
            "templates": bootstrap.templates,
            "shown_only": language in self._shown_only,
            "dev_language": language in self._dev_languages,
            "labels": int(np.unique(test.labels).size),
            "unanswerable": self._task.unanswerable[language],
            "systems": {name: self._system(system, language, test) for name, system in self._systems.items()},
            "differences": {
                f"{system}-{floor}": _gain(
                    float(self._difference(system, floor, language).mean()),
                    bootstrap.distribution(self._difference(system, floor, language)),
                )
                for system, floor in self._pairs()
            },
        }

    def _system(self, system: System, language: str, test: Sentences) -> dict[str, Any]:
        correct = self._correct(system.name, language)
        f1 = [100.0 * macro_f1(test.labels, row, labels=np.unique(test.labels).tolist()) for row in system.predictions[language]]
        entry: dict[str, Any] = {
            "accuracy": rounded(100.0 * correct.mean()),
            "interval": percent_interval(self._bootstraps[language].distribution(correct)),
            "macro_f1": rounded(np.mean(f1)),
            "seeds": {},
        }
        if len(correct) == len(self._task.seeds):
            entry["seeds"] = {
                str(seed): {"accuracy": rounded(100.0 * row.mean()), "macro_f1": rounded(value)}
                for seed, row, value in zip(self._task.seeds, correct, f1, strict=True)
            }
        return entry

    def _pairs(self) -> list[tuple[str, str]]:
        return [(system, floor) for system, floor in DIFFERENCES if system in self._systems and floor in self._systems]

    def _correct(self, system: str, language: str) -> NDArray[np.float64]:
        """Return 1 for a right answer and 0 for a wrong one: [seeds, n]."""
        return np.asarray(self._systems[system].predictions[language] == self._task.tests[language].labels, dtype=np.float64)

    def _difference(self, system: str, floor: str, language: str) -> NDArray[np.float64]:
        return self._correct(system, language) - self._correct(floor, language)


def english_dev(systems: Sequence[System]) -> dict[str, Any]:
    """Return what English dev chose for each system, and its accuracy there."""
    return {
        system.name: {**system.choices, **({} if system.dev_accuracy is None else {"english_dev_accuracy": rounded(system.dev_accuracy)})}
        for system in systems
    }


def dev_accuracy(systems: Sequence[System]) -> dict[str, dict[str, float]]:
    """Return accuracy on the dev sentences of dev languages, by system, and their mean: what choices of pretraining go by."""
    return {
        system.name: {
            **{language: rounded(value) for language, value in system.dev_sets.items()},
            "mean": rounded(np.mean(list(system.dev_sets.values()))),
        }
        for system in systems
        if system.dev_sets
    }


def _gain(gain: float, distribution: Floats) -> dict[str, Any]:
    return {"gain": rounded(100.0 * gain), "interval": percent_interval(distribution)}
