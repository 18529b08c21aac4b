"""What each rung of a ladder adds: runs compared sentence by sentence, pretraining seeds resampled in the outer loop.

A run's classifiers differ by their own seeds too; their right answers are averaged for each sentence, so that a value
[pretraining seeds, sentences] is a share. Pretraining seed s of one rung is paired with seed s of the rung below: the two
share the order of data and the first weights as far as their recipes do.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from xlm.errors import UserError
from xlm.evaluation.percent import percent_interval, rounded
from xlm.evaluation.statistics import Floats, TemplateBootstrap, holm, two_sided_p

P_DIGITS = 4
Shares = NDArray[np.float64]  # [pretraining seeds, sentences], 0 to 1


class Answers:
    """Where the runs of one rung are right, by language and system."""

    def __init__(self, runs: Sequence[Path]) -> None:
        """Read the predictions of ``runs``, the zero-shot folder of each pretraining seed."""
        self._runs = tuple(runs)
        self._tables: dict[tuple[Path, str], dict[str, list[str]]] = {}

    @property
    def languages(self) -> list[str]:
        """Return the languages that were scored."""
        return sorted(path.stem for path in (self._runs[0] / "predictions").glob("*.parquet"))

    def sentences(self, language: str) -> tuple[list[str], list[str]]:
        """Return the ids and templates of a language's test sentences; a UserError where runs were scored on others."""
        first = self._table(self._runs[0], language)
        for run in self._runs[1:]:
            if self._table(run, language)["id"] != first["id"]:
                raise UserError("this run was scored on other sentences than the first one; score it again.", file=run)
        return first["id"], first["template"]

    def shares(self, language: str, system: str) -> Shares | None:
        """Return the share of a system's seeds that are right, of each pretraining seed and sentence; None where it was not run."""
        rows = []
        for run in self._runs:
            table = self._table(run, language)
            columns = [table[name] for name in table if name == system or name.startswith(f"{system}:")]
            if not columns:
                return None
            label = np.asarray(table["label"], dtype=object)
            rows.append(np.mean([np.asarray(column, dtype=object) == label for column in columns], axis=0))
        return np.stack(rows).astype(np.float64)

    def _table(self, run: Path, language: str) -> dict[str, list[str]]:
        key = run, language
        if key not in self._tables:
            self._tables[key] = pq.read_table(run / "predictions" / f"{language}.parquet").to_pydict()
        return self._tables[key]


def rung_scores(
    answers: Answers, systems: Sequence[str], mean_languages: Sequence[str], dev_languages: Sequence[str] = ()
) -> dict[str, Any]:
    """Return accuracy of each system: by language, its mean over ``mean_languages``, and that mean of each pretraining seed.

    ``without_dev``: the mean without the languages whose dev templates choices of pretraining may have looked at.
    """
    others = [language for language in mean_languages if language not in dev_languages]
    table = {}
    for system in systems:
        shares = {language: answers.shares(language, system) for language in answers.languages}
        found = {language: values for language, values in shares.items() if values is not None}
        if not found:
            continue
        seeds = np.mean([100.0 * found[language].mean(axis=1) for language in mean_languages], axis=0)
        table[system] = {
            "languages": {language: rounded(100.0 * values.mean()) for language, values in found.items()},
            "mean": rounded(seeds.mean()),
            "without_dev": rounded(100.0 * np.mean([found[language].mean() for language in others])),
            "seeds": [rounded(value) for value in seeds],
        }
    return table


def difference(
    above: tuple[Answers, str], below: tuple[Answers, str], mean_languages: Sequence[str], *, samples: int
) -> dict[str, Any] | None:
    """Compare two (answers, system): gain, interval and p-value by language, Holm's correction over them, and the mean gain.

    None where one of the two was not run. Raises UserError where they were scored on other sentences.
    """
    distributions: dict[str, Floats] = {}
    gains: dict[str, float] = {}
    for language in mean_languages:
        upper, lower = (answers.shares(language, system) for answers, system in (above, below))
        if upper is None or lower is None:
            return None
        ids, templates = above[0].sentences(language)
        if below[0].sentences(language)[0] != ids:
            raise UserError(f"two rungs were scored on other sentences in '{language}'; score both again.")
        values = upper - lower
        bootstrap = TemplateBootstrap(
            templates, seeds=len(values), samples=samples, key=("ladder", language), seed_key=("ladder", len(values))
        )
        distributions[language] = bootstrap.distribution(values)
        gains[language] = float(values.mean())
    corrected = holm({language: two_sided_p(found) for language, found in distributions.items()})
    mean = np.mean(list(distributions.values()), axis=0)
    return {
        "languages": {
            language: {
                "gain": rounded(100.0 * gains[language]),
                "interval": percent_interval(distributions[language]),
                "p": round(two_sided_p(distributions[language]), P_DIGITS),
                "p_holm": round(corrected[language], P_DIGITS),
            }
            for language in mean_languages
        },
        "mean": {"gain": rounded(100.0 * np.mean(list(gains.values()))), "interval": percent_interval(mean)},
    }


def compare_rungs(
    rungs: Mapping[str, Answers], systems: Sequence[str], pairs: Sequence[tuple[str, str]], mean_languages: Sequence[str], *, samples: int
) -> list[dict[str, Any]]:
    """Return every comparison: each rung with the one before, system by system, and ``pairs`` of systems inside each rung."""
    found = []
    names = list(rungs)
    for system in systems:
        for before, after in itertools.pairwise(names):
            result = difference((rungs[after], system), (rungs[before], system), mean_languages, samples=samples)
            if result is not None:
                found.append({"rung": after, "against": before, "system": system, "against_system": system, **result})
    for name, answers in rungs.items():
        for system, plain in pairs:
            result = difference((answers, system), (answers, plain), mean_languages, samples=samples)
            if result is not None:
                found.append({"rung": name, "against": name, "system": system, "against_system": plain, **result})
    return found
