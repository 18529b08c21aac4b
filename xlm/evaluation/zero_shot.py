"""The zero-shot protocol from end to end: one checkpoint in, one score file with everything beside it out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from xlm.config.recipe import Recipe
from xlm.errors import UserError
from xlm.evaluation.intent_scores import IntentScores, dev_accuracy, english_dev
from xlm.evaluation.intent_systems import (
    BAG,
    CHARACTER_FLOOR,
    PROBE,
    RANDOM_ENCODER,
    SWITCHED_FINETUNED,
    SWITCHED_FLOOR,
    SWITCHED_PROBE,
    FeatureSet,
    Reader,
    System,
    bag_reader,
    chance_system,
    character_system,
    encoder_reader,
    finetuned_system,
    probe_system,
)
from xlm.evaluation.intent_task import SOURCE_LANGUAGE, IntentTask, load_intent_task
from xlm.evaluation.provenance import provenance
from xlm.evaluation.readout import Readout, chosen_readout, layer_name, load_translations, pairs_drawn
from xlm.evaluation.retrieval_scores import (
    choose_layer,
    embed_pools,
    left_out,
    load_pools,
    pool_scores,
    retrieval_means,
)
from xlm.evaluation.slot_scores import SlotScores
from xlm.evaluation.slot_systems import SlotSystems
from xlm.evaluation.slot_task import load_slot_task
from xlm.evaluation.switched_training import SwitchedTraining, load_switched_training, with_copies
from xlm.evaluation.trained_encoder import TrainedEncoder, load_trained_encoder, random_twin
from xlm.model.aligned import load_aligned
from xlm.runs.folder import RunFolder
from xlm.runs.progress import Progress
from xlm.tasks.evaluation_sets import TOPICS

ENCODER = "encoder"

PROTOCOL = (
    "train on English only; penalty (the strongest within one standard error of the best), layer, learning rate and epoch chosen on "
    "English dev only; probes read whitened vectors where the recipe says so; scored on the test split of every language; retrieval: "
    "mean-pooled vectors, cosine, mean over disjoint blocks of the pool, no training"
)

Table = NDArray[np.float32]


class ZeroShot:
    """Everything one evaluation needs, loaded once."""

    def __init__(self, recipe: Recipe, run: RunFolder) -> None:
        if recipe.tasks is None:
            raise UserError("this recipe has no tasks section, so there is nothing to score; add tasks (docs/evaluation.md).")
        self.recipe = recipe
        self.run = run
        self.languages = recipe.tasks.languages
        self.shown_only = recipe.tasks.intents.shown_only_languages
        self.evaluation = recipe.evaluation
        self.trained = load_trained_encoder(recipe, run)
        self.readout = chosen_readout(recipe.evaluation, self.trained.config.layers)
        dev_languages = recipe.evaluation.dev_languages
        self.task = load_intent_task(run.tasks, self.languages, recipe.evaluation.seeds, dev_languages=dev_languages)
        self.counts: Counter[str] = Counter()
        self.translations = load_translations(run.corpus, self.languages, recipe.evaluation.whitening, recipe.tasks.seed)
        self.reader = encoder_reader(self.trained, self.trained.encoder, self.readout, self.translations, self.counts)
        self.table = aligned_table(recipe, run, self.trained)
        self.bag = bag_reader(self.trained, self.table, self.translations) if self.table is not None else None
        topics = recipe.tasks.topics
        self.topic_task = load_intent_task(run.tasks, topics.languages, recipe.evaluation.seeds, TOPICS) if topics is not None else None
        self.slot_task = load_slot_task(run.tasks, self.task)
        section = recipe.evaluation.code_switched_training
        self.switched = load_switched_training(recipe, section, run, self.task) if section is not None else None

    def parts(self) -> int:
        """Return the number of units of progress: one for each system, and one for each epoch of fine-tuning."""
        evaluation = self.evaluation
        epochs = len(evaluation.seeds) * len(evaluation.finetune_learning_rates) * evaluation.finetune_epochs
        switched = 0 if self.switched is None else epochs + 1
        slots = 0 if self.slot_task is None else epochs + 3
        topics = 0 if self.topic_task is None else 3
        start = 0 if self.table is None else 1  # its retrieval
        return epochs + switched + slots + topics + start + 6 + len(evaluation.seeds)

    def intent_systems(self, progress: Progress) -> list[System]:
        """Run every system on the intent task."""
        task = self.task
        features = self.reader.features(task)
        probe = self._probe(PROBE, task, [features], self.reader)
        progress.advance(note="probe")
        finetuned, _ = finetuned_system(self.trained, task, self.evaluation, lambda: progress.advance(note="fine-tuning"))
        floor, _ = character_system(task)
        progress.advance(note="character n-grams")
        systems = [probe, finetuned, floor, self._random_system(task, lambda: progress.advance(note="random encoder"))]
        if self.bag is not None:
            systems.append(self._probe(BAG, task, [self.bag.features(task)], self.bag))
        progress.advance(note="bag of embeddings")
        if self.switched is not None:
            systems += self._switched_systems(self.switched, features, progress)
        return [*systems, chance_system(task)]

    def _switched_systems(self, switched: SwitchedTraining, plain: FeatureSet, progress: Progress) -> list[System]:
        finetuned, _ = finetuned_system(
            self.trained,
            self.task,
            self.evaluation,
            lambda: progress.advance(note="fine-tuning, code-switched"),
            name=SWITCHED_FINETUNED,
            copies=switched.copies,
        )
        task = with_copies(self.task, switched.copies)
        probe = self._probe(SWITCHED_PROBE, task, [self.reader.with_copies(plain, switched.copies)], self.reader)
        floor, _ = character_system(task, SWITCHED_FLOOR)
        progress.advance(note="probe, code-switched")
        return [probe, finetuned, floor]

    @cached_property
    def _random_readers(self) -> list[Reader]:
        """Readers of encoders with random weights, whitened by what they make of the same pairs; intents and topics share them."""
        twins = (random_twin(self.trained, seed) for seed in self.evaluation.seeds)
        return [encoder_reader(self.trained, twin, self.readout, self.translations) for twin in twins]

    def _random_system(self, task: IntentTask, after_seed: Callable[[], None] = lambda: None) -> System:
        """Probe encoders with random weights, another one for each seed, read like the trained one."""
        sets = []
        for reader in self._random_readers:
            sets.append(reader.features(task))
            after_seed()
        return self._probe(RANDOM_ENCODER, task, sets, self.reader)

    def _probe(self, name: str, task: IntentTask, sets: Sequence[FeatureSet], reader: Reader) -> System:
        """Fit probes on the features of each seed, or on one set for all of them."""
        each = sets if len(sets) > 1 else [*sets] * len(task.seeds)
        return probe_system(name, task, each, reader, self.evaluation.probe_penalties)[0]

    def topics(self, progress: Progress) -> IntentScores | None:
        """Probe the topics of articles, beside the floors; None where the recipe has none."""
        task = self.topic_task
        if task is None:
            return None
        systems = [self._probe(PROBE, task, [self.reader.features(task)], self.reader)]
        progress.advance(note="topics, probe")
        systems.append(character_system(task)[0])
        progress.advance(note="topics, character n-grams")
        systems.append(self._random_system(task))
        if self.bag is not None:
            systems.append(self._probe(BAG, task, [self.bag.features(task)], self.bag))
        systems.append(chance_system(task))
        progress.advance(note="topics, random encoder")
        return IntentScores(
            task,
            systems,
            bootstrap_samples=self.evaluation.bootstrap_samples,
            mean_languages=[language for language in task.tests if language != SOURCE_LANGUAGE],
            name=TOPICS,
        )

    def slots(self, progress: Progress) -> SlotScores | None:
        """Run every system on the slots of the same sentences; None where the templates have none."""
        if self.slot_task is None:
            return None
        build = SlotSystems(self.trained, self.slot_task, self.evaluation)
        systems = [build.probe(self.readout.unjoined)]
        progress.advance(note="slots, probe")
        systems.append(build.finetuned(lambda: progress.advance(note="slots, fine-tuning")))
        systems.append(build.character_floor())
        progress.advance(note="slots, character n-grams")
        systems.append(build.random_encoder(self.readout.unjoined))
        progress.advance(note="slots, random encoder")
        evaluation = self.evaluation
        return SlotScores(self.slot_task, systems, bootstrap_samples=evaluation.bootstrap_samples, mean_languages=evaluation.mean_languages)

    def retrieval(self, progress: Progress) -> dict[str, Any]:
        """Return the ``retrieval`` part of the score file."""
        pools, dev_pools = load_pools(self.run.tasks, self.languages), load_pools(self.run.tasks, self.languages, dev=True)
        trained, row = self.trained, 0
        layers = self.readout.unjoined.layers
        if len(layers) > 1:
            every = encoder_reader(trained, trained.encoder, Readout(layers), counts=self.counts)
            row = choose_layer(embed_pools(dev_pools, every.read), layers)
        layer = (layers[row],)
        readers = {
            ENCODER: encoder_reader(trained, trained.encoder, Readout(layer), counts=self.counts),
            RANDOM_ENCODER: encoder_reader(trained, random_twin(trained, self.evaluation.seeds[0]), Readout(layer)),
        }
        if self.table is not None:
            readers[BAG] = bag_reader(trained, self.table)
        by_language: dict[str, Any] = {language: {"pool": len(pool), "systems": {}} for language, pool in pools.items()}
        for name, reader in readers.items():
            for language, vectors in embed_pools(pools, reader.read).items():
                by_language[language]["systems"][name] = pool_scores(vectors)
            progress.advance(note=f"retrieval, {name}")
        return {
            "layer": layer_name(layer[0]),
            "layer_chosen_on": f"dev pools of {', '.join(dev_pools)}" if len(layers) > 1 and dev_pools else None,
            "languages": by_language,
            "means": {name: retrieval_means(by_language, name) for name in readers},
            "left_out": left_out(pools, self.languages),
        }


def run_zero_shot(recipe: Recipe, run: RunFolder, folder: Path) -> dict[str, Any]:
    """Score the run's last checkpoint, write per-sentence predictions under ``folder``, and return the score file's content.

    Raises UserError where a stage before this one is missing or does not fit.
    """
    zero_shot = ZeroShot(recipe, run)
    with Progress("zero-shot", total=zero_shot.parts(), unit="parts") as progress:
        systems = zero_shot.intent_systems(progress)
        slots = zero_shot.slots(progress)
        topics = zero_shot.topics(progress)
        retrieval = zero_shot.retrieval(progress)
        scores = IntentScores(
            zero_shot.task,
            systems,
            bootstrap_samples=recipe.evaluation.bootstrap_samples,
            mean_languages=recipe.evaluation.mean_languages,
            shown_only=zero_shot.shown_only,
            dev_languages=recipe.evaluation.dev_languages,
        )
        intents = {
            "labels": len(zero_shot.task.labels),
            "languages": scores.by_language(),
            "mean_languages": list(recipe.evaluation.mean_languages),
            "mean_differences": scores.mean_differences(),
            "collapsed": scores.collapsed(),
            "english_dev": english_dev(systems),
            "dev_languages": dev_accuracy(systems),
            "whitening_pairs": pairs_drawn(zero_shot.translations),
            "code_switched_training": zero_shot.switched.record if zero_shot.switched is not None else None,
        }
        progress.advance(note="statistics")
    write_predictions(folder / "predictions", zero_shot.task, systems)
    encoder_means = retrieval["means"][ENCODER]
    return {
        "unit": "percent",
        "intents": intents,
        "slots": slots.record() if slots is not None else None,
        "topics": {
            "labels": list(zero_shot.topic_task.labels),
            "languages": topics.by_language(),
            "mean_differences": topics.mean_differences(),
        }
        if topics is not None and zero_shot.topic_task is not None
        else None,
        "retrieval": retrieval,
        "summary": {
            **scores.means(),
            **(topics.means() if topics is not None else {}),
            **{f"dev.{name}": values["mean"] for name, values in dev_accuracy(systems).items()},
            **(slots.means() if slots is not None else {}),
            **{f"retrieval.{name}": value for name, value in encoder_means.items()},
        },
        "provenance": provenance(recipe, run, zero_shot.trained, protocol=PROTOCOL, texts=zero_shot.counts),
    }


def aligned_table(recipe: Recipe, run: RunFolder, trained: TrainedEncoder) -> Table | None:
    """Return the initial embeddings of a recipe that aligns them, None for one that starts at random."""
    if recipe.embeddings.kind != "aligned":
        return None
    return np.asarray(load_aligned(run.embeddings, trained.vocabulary.fingerprint), dtype=np.float32)


def write_predictions(folder: Path, task: IntentTask, systems: Sequence[System]) -> None:
    """Write one Parquet file a language: id, template, label, and a column a system and seed (``probe:1``)."""
    folder.mkdir(parents=True, exist_ok=True)
    names = np.asarray(task.labels, dtype=object)
    for language, test in task.tests.items():
        columns: dict[str, Any] = {"id": test.ids, "template": test.templates, "label": names[test.labels].tolist()}
        for system in systems:
            rows = system.predictions[language]
            for column, row in zip(_column_names(system, len(rows), task), rows, strict=True):
                columns[column] = names[row].tolist()
        pq.write_table(pa.table(columns), folder / f"{language}.parquet", compression="zstd")


def _column_names(system: System, rows: int, task: IntentTask) -> list[str]:
    return [f"{system.name}:{seed}" for seed in task.seeds] if rows == len(task.seeds) else [system.name] * rows


def summary_table(scores: Mapping[str, Any]) -> str:
    """Lay out intent accuracy and retrieval by language for a terminal."""
    intents = scores["intents"]["languages"]
    systems = list(next(iter(intents.values()))["systems"])
    retrieval = scores["retrieval"]["languages"]
    lines = [f"{'accuracy, %':<12}" + "".join(f"{_SHORT.get(name, name):>11}" for name in systems) + f"{'top-1 200':>11}{'top-1 2000':>11}"]
    for language, entry in intents.items():
        found = retrieval.get(language, {}).get("systems", {}).get(ENCODER, {})
        cells = [entry["systems"][name]["accuracy"] for name in systems]
        cells += [found[size]["mean"] if found.get(size) else None for size in ("top1_200", "top1_2000")]
        lines.append(f"{language:<12}" + "".join(f"{'-':>11}" if cell is None else f"{cell:>11.1f}" for cell in cells))
    return "\n".join(lines)


_SHORT = {
    CHARACTER_FLOOR: "characters",
    RANDOM_ENCODER: "random",
    BAG: "bag",
    SWITCHED_PROBE: "sw. probe",
    SWITCHED_FINETUNED: "sw. tuned",
    SWITCHED_FLOOR: "sw. chars",
}
