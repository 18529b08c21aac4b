"""What happens when one sentence mixes languages: English test sentences with words switched by a lexicon.

The classifiers are those of the zero-shot protocol, trained on English without any switched word. The
lexicon comes from the cleaned corpus, which pretraining saw as translations too: the suite asks whether a
sentence holds together when its words change language, not whether rare words are known. At each rate the
character floor reads the very same sentences. Where the recipe has code-switched training, the classifier that saw
it is scored too: it learned from one half of the lexicon, and the test switches words of the other half only.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlm.codeswitch.generate import SwitchedSentences, code_switched_intents
from xlm.config.recipe import Recipe
from xlm.errors import UserError
from xlm.evaluation.intent_systems import (
    CHARACTER_FLOOR,
    PROBE,
    SWITCHED_FLOOR,
    SWITCHED_PROBE,
    character_system,
    encoder_reader,
    probe_system,
)
from xlm.evaluation.intent_task import SOURCE_LANGUAGE, IntentTask, load_intent_task
from xlm.evaluation.lexicons import lexicon_record, load_lexicons
from xlm.evaluation.percent import percent_interval, rounded
from xlm.evaluation.probe import Probe
from xlm.evaluation.provenance import provenance
from xlm.evaluation.readout import chosen_readout, load_translations
from xlm.evaluation.statistics import TemplateBootstrap
from xlm.evaluation.switched_training import load_switched_training, with_copies
from xlm.evaluation.trained_encoder import TrainedEncoder, load_trained_encoder
from xlm.runs.folder import RunFolder
from xlm.runs.progress import Progress
from xlm.runs.stage import read_record
from xlm.tasks.evaluation_sets import LabelledText

# Two languages: the index cannot pass 50.
CMI_EDGES = (0, 10, 20, 30, 40, 50)
# Each system is compared with the characters that saw the same text.
FLOOR_OF = {PROBE: CHARACTER_FLOOR, SWITCHED_PROBE: SWITCHED_FLOOR}
# A bucket with fewer sentences shows its accuracy, and no test.
FEWEST_TESTED = 200

PROTOCOL = (
    "English intent test sentences, words switched by the test half of a lexicon of 1-3-word entries of the cleaned corpus, each "
    "with the given probability; classifiers trained on unswitched English as in the zero-shot protocol; code_switched_training: on "
    "copies switched by the other half too, no English word in both"
)

Labels = NDArray[np.int64]


class SwitchedSuite:
    """The classifiers of the suite, fitted once on English, and the English test sentences to switch."""

    def __init__(self, recipe: Recipe, run: RunFolder) -> None:
        if recipe.tasks is None:
            raise UserError("this recipe has no tasks section, so there is nothing to score; add tasks (docs/evaluation.md).")
        self.seed = recipe.tasks.seed
        self.trained: TrainedEncoder = load_trained_encoder(recipe, run)
        self.task: IntentTask = load_intent_task(run.tasks, (SOURCE_LANGUAGE,), recipe.evaluation.seeds)
        self.counts: Counter[str] = Counter()
        readout = chosen_readout(recipe.evaluation, self.trained.config.layers)
        translations = load_translations(run.corpus, recipe.tasks.languages, recipe.evaluation.whitening, self.seed)
        self._reader = encoder_reader(self.trained, self.trained.encoder, readout, translations, self.counts)
        seeds = len(self.task.seeds)
        tasks = {PROBE: self.task}
        features = {PROBE: self._reader.features(self.task)}
        self.training: dict[str, Any] | None = None
        if recipe.evaluation.code_switched_training is not None:
            switched = load_switched_training(recipe, recipe.evaluation.code_switched_training, run, self.task)
            self.training = switched.record
            tasks[SWITCHED_PROBE] = with_copies(self.task, switched.copies)
            features[SWITCHED_PROBE] = self._reader.with_copies(features[PROBE], switched.copies)
        # Of each system its probes, one a seed, and the row of the vectors that they read.
        self._probes: dict[str, tuple[int, list[Probe]]] = {}
        for name, task in tasks.items():
            _, probes, row = probe_system(name, task, [features[name]] * seeds, self._reader, recipe.evaluation.probe_penalties)
            self._probes[name] = row, probes
        self._characters = {CHARACTER_FLOOR: character_system(self.task)[1]}
        if SWITCHED_PROBE in tasks:
            self._characters[SWITCHED_FLOOR] = character_system(tasks[SWITCHED_PROBE])[1]
        test = self.task.tests[SOURCE_LANGUAGE]
        self.sentences = [
            LabelledText(*fields, "test")
            for fields in zip(test.ids, test.texts, (self.task.labels[label] for label in test.labels), test.templates, strict=True)
        ]
        self.labels = test.labels
        self.bootstrap = TemplateBootstrap(
            test.templates,
            seeds=seeds,
            samples=recipe.evaluation.bootstrap_samples,
            key=("code-switching",),
            seed_key=("code-switching", seeds),
        )

    def correct(self, texts: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        """Return for each system where it is right on ``texts`` (the test sentences, switched or not): [seeds, n]."""
        vectors = self._reader.read(texts, SOURCE_LANGUAGE)
        predicted = {name: [probe.predict(vectors[row]) for probe in probes] for name, (row, probes) in self._probes.items()}
        predicted |= {name: [classifier.predict(texts) for classifier in own] for name, own in self._characters.items()}
        return {name: (np.stack(rows) == self.labels).astype(np.float64) for name, rows in predicted.items()}

    def score(self, correct: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
        """Return accuracy and interval of each system, and the gain over the floor of each that is not the floor."""
        return {
            "systems": {
                name: {"accuracy": rounded(100.0 * right.mean()), "interval": percent_interval(self.bootstrap.distribution(right))}
                for name, right in correct.items()
            },
            "differences": gains_over_floor(correct, self.bootstrap),
        }


@dataclass(frozen=True)
class Outcome:
    """What switching did to a set of n sentences: the CMI of each, and where each system is right."""

    cmi: NDArray[np.float64]  # [n]
    right: Mapping[str, NDArray[np.float64]]  # [seeds, n] each


def run_code_switching(recipe: Recipe, run: RunFolder, folder: Path) -> dict[str, Any]:
    """Score switched sentences in every language and at every rate, write them under ``folder``, return the score file's content.

    Raises UserError where a stage before this one is missing, or a language has no pairs with English.
    """
    languages, rates = recipe.evaluation.code_switching_languages, recipe.evaluation.code_switching_rates
    if recipe.tasks is None:
        raise UserError("this recipe has no tasks section, so there is nothing to score; add tasks (docs/evaluation.md).")
    lexicons = load_lexicons(run.corpus, languages, recipe.tasks.seed, "evaluation.code_switching_languages")
    outcomes: list[Outcome] = []
    cells: dict[str, dict[str, Any]] = {language: {} for language in languages}
    with Progress("code-switching", total=1 + len(languages) * len(rates), unit="test sets") as progress:
        suite = SwitchedSuite(recipe, run)
        english = suite.score(suite.correct([sentence.text for sentence in suite.sentences]))
        progress.advance(note="classifiers")
        for language in languages:
            for rate in rates:
                switched = code_switched_intents(suite.sentences, lexicons.test[language], language, rate, suite.seed)
                correct = suite.correct([sentence.text for sentence in switched.sentences])
                cells[language][f"{rate:g}"] = {**describe(switched), **suite.score(correct)}
                outcomes.append(Outcome(np.array([draw.cmi for draw in switched.draws]), correct))
                write_sentences(folder / "sets" / f"{language}-{rate:g}.jsonl", switched)
                progress.advance(note=f"{language} at {rate:g}")
    return {
        "unit": "percent",
        "english": english,
        "languages": cells,
        "cmi_buckets": cmi_buckets(outcomes, suite.task.tests[SOURCE_LANGUAGE].templates, recipe.evaluation.bootstrap_samples),
        "lexicon": lexicon_record(lexicons.test, lexicons.left_out, [sentence.text for sentence in suite.sentences]),
        "training": suite.training,
        "provenance": {
            **provenance(recipe, run, suite.trained, protocol=PROTOCOL, texts=suite.counts),
            "corpus": read_record(run.corpus).fingerprint,
            "switching_seed": suite.seed,
        },
    }


def gains_over_floor(right: Mapping[str, NDArray[np.float64]], bootstrap: TemplateBootstrap) -> dict[str, Any]:
    """Return each probe's gain over the characters trained on the same text, by ``<system>-<floor>``; ``right`` as in `Outcome`."""
    gains = {(system, floor): right[system] - right[floor] for system, floor in FLOOR_OF.items() if system in right}
    return {
        f"{system}-{floor}": {"gain": rounded(100.0 * gain.mean()), "interval": percent_interval(bootstrap.distribution(gain))}
        for (system, floor), gain in gains.items()
    }


def describe(switched: SwitchedSentences[LabelledText]) -> dict[str, Any]:
    """Return how a set came out: sizes, and what was switched against what was asked for."""
    return {
        "sentences": len(switched.sentences),
        "unswitched": switched.unswitched,
        "uncovered": switched.uncovered,
        "realised_share": rounded(100.0 * switched.realised_share),
        "mean_cmi": rounded(switched.mean_cmi),
    }


def cmi_buckets(outcomes: Sequence[Outcome], templates: Sequence[str], samples: int) -> list[dict[str, Any]]:
    """Return accuracy by realised CMI over all languages and rates, ``low`` included, ``high`` only in the last bucket.

    ``templates`` [n] of the n sentences, the same in every outcome. A bucket of at least `FEWEST_TESTED` sentences has
    the gains over the floor with intervals, a smaller one None. The template is resampled, with all that was switched of
    it, into any language and at any rate.
    """
    if not outcomes:
        return []
    cmi = np.concatenate([outcome.cmi for outcome in outcomes])
    right = {name: np.concatenate([outcome.right[name] for outcome in outcomes], axis=1) for name in outcomes[0].right}
    all_templates = np.tile(np.asarray(templates, dtype=object), len(outcomes))
    buckets: list[dict[str, Any]] = []
    for low, high in itertools.pairwise(CMI_EDGES):
        inside = (cmi >= low) & ((cmi < high) | ((high == CMI_EDGES[-1]) & (cmi >= high)))
        bucket: dict[str, Any] = {"low": low, "high": high, "sentences": int(inside.sum())}
        found = {name: rows[:, inside] for name, rows in right.items()}
        for name, rows in found.items():
            bucket[name] = rounded(100.0 * rows.mean()) if inside.any() else None
        bucket["differences"] = None
        if inside.sum() >= FEWEST_TESTED:
            seeds = next(iter(found.values())).shape[0]
            keys = ("code-switching bucket", low), ("code-switching", seeds)
            bootstrap = TemplateBootstrap(all_templates[inside].tolist(), seeds=seeds, samples=samples, key=keys[0], seed_key=keys[1])
            bucket["differences"] = gains_over_floor(found, bootstrap)
        buckets.append(bucket)
    return buckets


def write_sentences(path: Path, switched: SwitchedSentences[LabelledText]) -> None:
    """Write switched sentences as JSON lines, with the CMI and the share of words switched."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as stream:
        for sentence, draw in zip(switched.sentences, switched.draws, strict=True):
            line = {
                "id": sentence.id,
                "text": sentence.text,
                "label": sentence.label,
                "template": sentence.template,
                "cmi": rounded(draw.cmi),
                "switched_share": rounded(100.0 * draw.realised_share),
            }
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")


def switching_table(scores: Mapping[str, Any]) -> str:
    """Lay out accuracy by language and rate for a terminal."""
    english = scores["english"]["systems"]
    lines = [f"{'accuracy, %':<14}{'share':>8}{'CMI':>8}" + "".join(f"{_SHORT[name]:>10}" for name in english)]

    def line(name: str, share: float, index: float, systems: Mapping[str, Any]) -> str:
        return f"{name:<14}{share:>8.1f}{index:>8.1f}" + "".join(f"{systems[system]['accuracy']:>10.1f}" for system in english)

    lines.append(line("en, unswitched", 0.0, 0.0, english))
    for language, rates in scores["languages"].items():
        for rate, cell in rates.items():
            lines.append(line(f"{language} {rate}", cell["realised_share"], cell["mean_cmi"], cell["systems"]))
    return "\n".join(lines)


_SHORT = {PROBE: "probe", SWITCHED_PROBE: "sw. probe", CHARACTER_FLOOR: "floor", SWITCHED_FLOOR: "sw. floor"}
