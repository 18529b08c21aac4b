from dataclasses import replace

import numpy as np
import pytest

from xlm.config.model import ModelConfig
from xlm.config.recipe import EvaluationSection
from xlm.evaluation.intent_systems import (
    System,
    bag_reader,
    chance_system,
    character_system,
    encoder_reader,
    finetuned_system,
    probe_system,
)
from xlm.evaluation.intent_task import IntentTask, Sentences, training_subset
from xlm.evaluation.packing import tokenise
from xlm.evaluation.readout import Readout, Translations
from xlm.evaluation.trained_encoder import TrainedEncoder, random_twin
from xlm.model.encoder import Encoder
from xlm.vocab.spec import VocabularySpec
from xlm.vocab.train import train_vocabulary

ENGLISH = (
    ["turn on the light", "lights on", "light please", "more light"],
    ["open the door", "door open now", "unlock the door", "the door"],
)
LIGHT, DOOR = ("light", "lights", "licht"), ("door", "tür")
GERMAN = (["licht", "licht licht"], ["tür", "tür tür"])


def sentences(groups, repeat=1):
    texts = [text for group in groups for text in group] * repeat
    labels = np.array([label for label, group in enumerate(groups) for _ in group] * repeat)
    return Sentences(tuple(map(str, range(len(texts)))), tuple(texts), labels, tuple(texts))


@pytest.fixture(scope="module")
def task():
    train = sentences(ENGLISH, 4)
    tests = {"en": sentences(ENGLISH), "de": sentences(GERMAN)}
    subsets = tuple(training_subset(train.templates, train.labels, seed) for seed in (1, 2))
    return IntentTask(("light", "door"), train, sentences(ENGLISH), tests, {"en": {}, "de": {}}, {}, (1, 2), subsets)


@pytest.fixture(scope="module")
def trained():
    vocabulary = train_vocabulary([*ENGLISH[0], *ENGLISH[1], *GERMAN[0], *GERMAN[1]] * 5, VocabularySpec(size=310, threads=1))
    config = ModelConfig(width=16, layers=2, heads=2, feed_forward=32, max_positions=32, initializer_range=0.3)
    return TrainedEncoder(Encoder(config, vocabulary.size, 1), vocabulary, config, ("en", "de"), 1, None, "fp32")


def translated(trained):
    """A table in which pieces of words of one label, English or German, point one way; shared pieces point nowhere."""
    table = np.zeros((trained.vocabulary.size, 2), dtype=np.float32)
    pieces = [set(np.concatenate([trained.vocabulary.encode(word) for word in words]).tolist()) for words in (LIGHT, DOOR)]
    for label, own in enumerate((pieces[0] - pieces[1], pieces[1] - pieces[0])):
        table[sorted(own)] += np.eye(2, dtype=np.float32)[label]
    return table


def test_features_cover_every_set_and_layer(trained, task):
    features = encoder_reader(trained, trained.encoder, Readout((0, -1))).features(task)
    assert features.train.shape == (2, 32, 16)
    assert features.dev.shape == (2, 8, 16)
    assert {language: vectors.shape for language, vectors in features.tests.items()} == {"en": (2, 8, 16), "de": (2, 4, 16)}


def test_probe_transfers_where_the_vectors_are_aligned(trained, task):
    reader = bag_reader(trained, translated(trained))
    system, probes, row = probe_system("bag", task, [reader.features(task)] * 2, reader, (1.0,))
    assert (system.predictions["de"] == task.tests["de"].labels).mean() == 1.0
    assert system.predictions["de"].shape == (2, 4)
    assert system.dev_accuracy == 100.0
    assert system.choices == {"penalty": 1.0, "layer": "bag"}
    assert (row, len(probes)) == (0, 2)


def test_each_seed_may_have_its_own_encoder(trained, task):
    readers = [encoder_reader(trained, random_twin(trained, seed), Readout((-1,))) for seed in (1, 2)]
    sets = [reader.features(task) for reader in readers]
    both, _, _ = probe_system("random_encoder", task, sets, readers[0], (1.0,))
    second, _, _ = probe_system("random_encoder", task, [sets[1]] * 2, readers[0], (1.0,))
    assert (both.predictions["de"][1] == second.predictions["de"][1]).all()
    assert not np.array_equal(sets[0].train, sets[1].train)


def test_finetuning_labels_every_language(trained, task):
    evaluation = EvaluationSection(finetune_epochs=3, finetune_batch_size=8, finetune_learning_rates=(3e-3,))
    epochs = []
    system, runs = finetuned_system(trained, task, evaluation, lambda: epochs.append(1))
    assert {language: rows.shape for language, rows in system.predictions.items()} == {"en": (2, 8), "de": (2, 4)}
    assert (system.predictions["en"] == task.tests["en"].labels).mean() > 0.7
    assert system.choices["learning_rate"] == 3e-3
    assert set(system.choices["epochs"]) == {"1", "2"}
    assert len(epochs) == 6
    assert len(runs) == 2


def test_character_floor_knows_english_only(task):
    system, classifiers = character_system(task)
    assert (system.predictions["en"] == task.tests["en"].labels).mean() == 1.0
    assert len(classifiers) == 2


def test_chance_is_one_label(task):
    system = chance_system(task)
    assert system.predictions["de"].shape == (1, 4)
    assert len(set(system.predictions["de"][0])) == 1
    assert system.choices["uniform_accuracy"] == 50.0


def test_collapsed_seeds_are_found():
    system = System("probe", {"de": np.array([[0, 1] * 20, [1] * 40])})
    assert system.collapsed_seeds("de") == [1]


def test_joined_layers_are_one_choice_and_copies_follow(trained, task):
    reader = encoder_reader(trained, trained.encoder, Readout((0, 1, -1), joined=True))
    features = reader.features(task)
    assert features.train.shape == (1, 32, 48)
    more = reader.with_copies(features, [task.train.texts[::-1]])
    np.testing.assert_array_equal(more.train[:, :32], features.train)
    np.testing.assert_array_equal(more.train[:, 32:], features.train[:, ::-1])


def test_whitened_vectors_are_scaled_alike(trained, task):
    pairs = [Translations("de", ("turn on the light", "open the door", "lights on"), ("licht", "tür", "licht licht"))]
    reader = encoder_reader(trained, trained.encoder, Readout((-1,)), pairs)
    assert reader.whitened
    _, probes, _ = probe_system("probe", task, [reader.features(task)] * 2, reader, (1.0,))
    assert np.ptp(probes[0].deviation) == 0.0


def test_tokens_are_those_of_the_vocabulary(trained, task):
    table = translated(trained)
    features = bag_reader(trained, table).features(task)
    first = tokenise(trained.vocabulary, task.tests["de"].texts[:1], 32).sequences[0][1:-1]
    np.testing.assert_allclose(features.tests["de"][0, 0], table[first].mean(axis=0), rtol=1e-6)


def test_dev_sentences_of_named_languages_are_scored_apart(trained, task):
    more = replace(task, dev_sets={"de": sentences(GERMAN, 3)})
    reader = bag_reader(trained, translated(trained))
    features = reader.features(more)
    system, _, _ = probe_system("bag", more, [features] * 2, reader, (1.0,))
    assert system.dev_sets == {"de": 100.0}
    assert system.predictions.keys() == task.tests.keys()
    assert probe_system("bag", task, [features] * 2, reader, (1.0,))[0].dev_sets == {}
