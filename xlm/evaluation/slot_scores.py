"""From predicted tags to scores: entity F1 by language and seed, intervals, and differences to the floors, in percent.

F1 is micro-averaged over the entities of a test set, 2 TP / (entities named + entities there), as seqeval has it. A
sample of the bootstrap sums the three counts over the sentences of the templates drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlm.evaluation.intent_systems import CHARACTER_FLOOR, FINETUNED, PROBE, RANDOM_ENCODER
from xlm.evaluation.percent import percent_interval, rounded
from xlm.evaluation.slot_systems import TagSystem
from xlm.evaluation.slot_task import SlotTask
from xlm.evaluation.statistics import Floats, TemplateBootstrap
from xlm.tasks.metrics import entities

DIFFERENCES = tuple((system, floor) for system in (PROBE, FINETUNED) for floor in (CHARACTER_FLOOR, RANDOM_ENCODER))
Counts = NDArray[np.float64]  # [seeds, n]


class SlotScores:
    """Scores of several systems on the slot task; ``mean_languages`` are those that the means run over."""

    def __init__(self, task: SlotTask, systems: Sequence[TagSystem], *, bootstrap_samples: int, mean_languages: Sequence[str]) -> None:
        self._task = task
        self._systems = {system.name: system for system in systems}
        self._mean_languages = [language for language in mean_languages if language in task.tests]
        self._bootstraps = {
            language: TemplateBootstrap(
                test.templates,
                seeds=len(task.seeds),
                samples=bootstrap_samples,
                key=("slots", language),
                seed_key=("slots", len(task.seeds)),
            )
            for language, test in task.tests.items()
        }
        # By system and language: right and all entities (named plus there) of each sentence and seed, lenient and strict.
        self._counts = {
            (name, language, strict): self._count(system, language, strict)
            for name, system in self._systems.items()
            for language in self._bootstraps
            for strict in (False, True)
        }

    def record(self) -> dict[str, Any]:
        """Return the ``slots`` part of a score file."""
        return {
            "tags": len(self._task.tags),
            "languages": self.by_language(),
            "mean_languages": self._mean_languages,
            "mean_differences": self.mean_differences(),
            "english_dev": {
                name: {**system.choices, "english_dev_tag_accuracy": rounded(system.dev_accuracy)} for name, system in self._systems.items()
            },
        }

    def by_language(self) -> dict[str, Any]:
        """Return the ``slots.languages`` part of a score file."""
        table = {}
        for language, bootstrap in self._bootstraps.items():
            test = self._task.tests[language]
            table[language] = {
                "sentences": len(test),
                "templates": bootstrap.templates,
                "entities": sum(len(entities(tags)) for tags in test.tags),
                "unknown_slots": self._task.unknown[language],
                "systems": {name: self._system(name, language) for name in self._systems},
                "differences": {f"{system}-{floor}": self._difference(system, floor, [language]) for system, floor in self._pairs()},
            }
        return table

    def means(self) -> dict[str, float]:
        """Return each system's F1 averaged over the mean languages, as ``slots.<system>``."""
        if not self._mean_languages:
            return {}
        return {
            f"slots.{name}": rounded(np.mean([100.0 * self._f1(name, language).mean() for language in self._mean_languages]))
            for name in self._systems
        }

    def mean_differences(self) -> dict[str, Any]:
        """Return gains averaged over the mean languages."""
        if not self._mean_languages:
            return {}
        return {f"{system}-{floor}": self._difference(system, floor, self._mean_languages) for system, floor in self._pairs()}

    def _system(self, name: str, language: str) -> dict[str, Any]:
        lenient, strict = self._f1(name, language), self._f1(name, language, strict=True)
        return {
            "f1": rounded(100.0 * lenient.mean()),
            "interval": percent_interval(self._distribution(name, language)),
            "strict_f1": rounded(100.0 * strict.mean()),
            "seeds": {str(seed): rounded(100.0 * value) for seed, value in zip(self._task.seeds, lenient, strict=True)},
        }

    def _difference(self, system: str, floor: str, languages: Sequence[str]) -> dict[str, Any]:
        gains = [self._f1(system, language).mean() - self._f1(floor, language).mean() for language in languages]
        distributions = [self._distribution(system, language) - self._distribution(floor, language) for language in languages]
        return {"gain": rounded(100.0 * np.mean(gains)), "interval": percent_interval(np.mean(distributions, axis=0))}

    def _pairs(self) -> list[tuple[str, str]]:
        return [(system, floor) for system, floor in DIFFERENCES if system in self._systems and floor in self._systems]

    def _f1(self, name: str, language: str, *, strict: bool = False) -> Floats:
        """Return F1 [seeds], 0 to 1; 0 where there is nothing to name and nothing named."""
        right, total = self._counts[name, language, strict]
        return np.asarray(2.0 * right.sum(axis=1) / np.maximum(total.sum(axis=1), 1.0))

    def _distribution(self, name: str, language: str) -> Floats:
        right, total = self._counts[name, language, False]
        return self._bootstraps[language].ratio_distribution(2.0 * right, total)

    def _count(self, system: TagSystem, language: str, strict: bool) -> tuple[Counts, Counts]:
        gold = [entities(tags, strict=strict) for tags in self._task.tests[language].tags]
        right, total = [], []
        for predicted in system.predictions[language]:
            found = [entities(tags, strict=strict) for tags in predicted]
            right.append([len(named & there) for named, there in zip(found, gold, strict=True)])
            total.append([len(named) + len(there) for named, there in zip(found, gold, strict=True)])
        return np.array(right, dtype=np.float64), np.array(total, dtype=np.float64)
