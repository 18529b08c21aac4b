"""What happens when one sentence mixes languages: English test sentences with words switched by a lexicon.

The classifiers are those of the zero-shot protocol, trained on English without any switched word. The
lexicon comes from the cleaned corpus, which pretraining saw as translations too: the suite asks whether a
sentence holds together when its words change language, not whether rare words are known. At each rate the
character floor reads the very same sentences.
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
from xlm.codeswitch.lexicon import Lexicon
from xlm.config.recipe import Recipe
from xlm.corpora.documents import pair_name
from xlm.corpora.store import pair_names, read_pairs
from xlm.errors import UserError
from xlm.evaluation.intent_systems import CHARACTER_FLOOR, PROBE, character_system, encoder_features, probe_system
from xlm.evaluation.intent_task import SOURCE_LANGUAGE, IntentTask, load_intent_task
from xlm.evaluation.percent import percent_interval, rounded
from xlm.evaluation.provenance import provenance
from xlm.evaluation.statistics import TemplateBootstrap
from xlm.evaluation.trained_encoder import TrainedEncoder, load_trained_encoder
from xlm.evaluation.zero_shot import chosen_layers
from xlm.runs.folder import RunFolder
from xlm.runs.progress import Progress
from xlm.runs.stage import read_record
from xlm.tasks.evaluation_sets import IntentSentence

# Two languages: the index cannot pass 50.
CMI_EDGES = (0, 10, 20, 30, 40, 50)
SYSTEMS = (PROBE, CHARACTER_FLOOR)

PROTOCOL = (
    "English intent test sentences, words switched by a lexicon of 1-3-word entries of the cleaned corpus, each with the given "
    "probability; classifiers trained on unswitched English as in the zero-shot protocol"
)

Labels = NDArray[np.int64]


class SwitchedSuite:
    """The two classifiers of the suite, fitted once on English, and the English test sentences to switch."""

    def __init__(self, recipe: Recipe, run: RunFolder) -> None:
        if recipe.tasks is None:
            raise UserError("this recipe has no tasks section, so there is nothing to score; add tasks (docs/evaluation.md).")
        self.seed = recipe.tasks.seed
        self.trained: TrainedEncoder = load_trained_encoder(recipe, run)
        self.task: IntentTask = load_intent_task(run.tasks, (SOURCE_LANGUAGE,), recipe.evaluation.seeds)
        self.counts: Counter[str] = Counter()
        layers = chosen_layers(recipe.evaluation, self.trained.config.layers)
        features = encoder_features(self.trained, self.trained.encoder, self.task, layers)
        seeds = len(self.task.seeds)
        _, self._probes, row = probe_system(PROBE, self.task, [features] * seeds, layers, recipe.evaluation.probe_penalties)
        self._layer = layers[row]
        _, self._characters = character_system(self.task)
        test = self.task.tests[SOURCE_LANGUAGE]
        self.sentences = [
            IntentSentence(*fields, "test")
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
        vectors = self.trained.encode(texts, SOURCE_LANGUAGE, (self._layer,), counts=self.counts)[0]
        predicted = {
            PROBE: [probe.predict(vectors) for probe in self._probes],
            CHARACTER_FLOOR: [classifier.predict(texts) for classifier in self._characters],
        }
        return {name: (np.stack(rows) == self.labels).astype(np.float64) for name, rows in predicted.items()}

    def score(self, correct: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
        """Return accuracy and interval of each system, and the probe's gain over the floor."""
        gain = correct[PROBE] - correct[CHARACTER_FLOOR]
        return {
            "systems": {
                name: {
                    "accuracy": rounded(100.0 * correct[name].mean()),
                    "interval": percent_interval(self.bootstrap.distribution(correct[name])),
                }
                for name in SYSTEMS
            },
            "differences": {
                f"{PROBE}-{CHARACTER_FLOOR}": {
                    "gain": rounded(100.0 * gain.mean()),
                    "interval": percent_interval(self.bootstrap.distribution(gain)),
                }
            },
        }


@dataclass(frozen=True)
class Outcome:
    """What one sentence's switching did to the systems: its CMI, and each system's share of seeds that are right."""

    cmi: NDArray[np.float64]  # [n]
    right: Mapping[str, NDArray[np.float64]]  # [n] each


def run_code_switching(recipe: Recipe, run: RunFolder, folder: Path) -> dict[str, Any]:
    """Score switched sentences in every language and at every rate, write them under ``folder``, return the score file's content.

    Raises UserError where a stage before this one is missing, or a language has no pairs with English.
    """
    languages, rates = recipe.evaluation.code_switching_languages, recipe.evaluation.code_switching_rates
    lexicons = load_lexicons(run.corpus, languages)
    outcomes: list[Outcome] = []
    cells: dict[str, dict[str, Any]] = {language: {} for language in languages}
    with Progress("code-switching", total=1 + len(languages) * len(rates), unit="test sets") as progress:
        suite = SwitchedSuite(recipe, run)
        english = suite.score(suite.correct([sentence.text for sentence in suite.sentences]))
        progress.advance(note="classifiers")
        for language in languages:
            for rate in rates:
                switched = code_switched_intents(suite.sentences, lexicons[language], language, rate, suite.seed)
                correct = suite.correct([sentence.text for sentence in switched.sentences])
                cells[language][f"{rate:g}"] = {**describe(switched), **suite.score(correct)}
                outcomes.append(
                    Outcome(np.array([draw.cmi for draw in switched.draws]), {name: rows.mean(axis=0) for name, rows in correct.items()})
                )
                write_sentences(folder / "sets" / f"{language}-{rate:g}.jsonl", switched)
                progress.advance(note=f"{language} at {rate:g}")
    coverage = {language: lexicon.coverage(sentence.text for sentence in suite.sentences) for language, lexicon in lexicons.items()}
    return {
        "unit": "percent",
        "english": english,
        "languages": cells,
        "cmi_buckets": cmi_buckets(outcomes),
        "lexicon": {
            language: {"entries": len(lexicon), "coverage": rounded(100.0 * coverage[language].share)}
            for language, lexicon in lexicons.items()
        },
        "provenance": {
            **provenance(recipe, run, suite.trained, protocol=PROTOCOL, texts=suite.counts),
            "corpus": read_record(run.corpus).fingerprint,
            "switching_seed": suite.seed,
        },
    }


def load_lexicons(corpus: Path, languages: Sequence[str]) -> dict[str, Lexicon]:
    """Build the lexicon of each language from the cleaned pairs; raises UserError for a language without pairs."""
    present = pair_names(corpus)
    lexicons = {}
    for language in languages:
        name = pair_name(SOURCE_LANGUAGE, language)
        if name not in present:
            raise UserError(
                f"evaluation.code_switching_languages names '{language}', but the corpus has no pairs {name}; "
                f"there are {', '.join(present)}."
            )
        lexicons[language] = Lexicon.from_pairs(read_pairs(corpus, name))
    return lexicons


def describe(switched: SwitchedSentences[IntentSentence]) -> dict[str, Any]:
    """Return how a set came out: sizes, and what was switched against what was asked for."""
    return {
        "sentences": len(switched.sentences),
        "unswitched": switched.unswitched,
        "uncovered": switched.uncovered,
        "realised_share": rounded(100.0 * switched.realised_share),
        "mean_cmi": rounded(switched.mean_cmi),
    }


def cmi_buckets(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return accuracy by realised CMI over all languages and rates, ``low`` included, ``high`` only in the last bucket."""
    if not outcomes:
        return []
    cmi = np.concatenate([outcome.cmi for outcome in outcomes])
    right = {name: np.concatenate([outcome.right[name] for outcome in outcomes]) for name in outcomes[0].right}
    buckets: list[dict[str, Any]] = []
    for low, high in itertools.pairwise(CMI_EDGES):
        inside = (cmi >= low) & ((cmi < high) | ((high == CMI_EDGES[-1]) & (cmi >= high)))
        bucket: dict[str, Any] = {"low": low, "high": high, "sentences": int(inside.sum())}
        for name, values in right.items():
            bucket[name] = rounded(100.0 * values[inside].mean()) if inside.any() else None
        buckets.append(bucket)
    return buckets


def write_sentences(path: Path, switched: SwitchedSentences[IntentSentence]) -> None:
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
    lines = [f"{'accuracy, %':<14}{'share':>8}{'CMI':>8}{'probe':>8}{'floor':>8}"]
    english = scores["english"]["systems"]
    lines.append(
        f"{'en, unswitched':<14}{0.0:>8.1f}{0.0:>8.1f}{english[PROBE]['accuracy']:>8.1f}{english[CHARACTER_FLOOR]['accuracy']:>8.1f}"
    )
    for language, rates in scores["languages"].items():
        for rate, cell in rates.items():
            systems = cell["systems"]
            lines.append(
                f"{language + ' ' + rate:<14}{cell['realised_share']:>8.1f}{cell['mean_cmi']:>8.1f}"
                f"{systems[PROBE]['accuracy']:>8.1f}{systems[CHARACTER_FLOOR]['accuracy']:>8.1f}"
            )
    return "\n".join(lines)
