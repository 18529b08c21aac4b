import numpy as np
import pytest

from xlm.evaluation.floors import CHARACTER_PENALTIES, bag_of_embeddings, choose_character_classifiers, majority_label
from xlm.evaluation.packing import TokenisedTexts

TEXTS = ["turn on the light", "turn the light on", "lights on please", "switch the lamp on"] * 5 + [
    "what is the weather",
    "weather tomorrow",
    "how is the weather today",
    "weather in berlin",
] * 5
LABELS = np.array([0] * 20 + [1] * 20)


def test_character_floor_reads_shared_letters_in_another_language():
    choice, classifiers = choose_character_classifiers(TEXTS, ["light", "weather"], LABELS, np.array([0, 1]), [np.arange(40)] * 2)
    assert choice.dev_accuracy == 1.0
    assert choice.penalty == max(CHARACTER_PENALTIES)  # ties go to the stronger
    assert classifiers[0].predict(["lampe einschalten", "weather-bericht"]).tolist() == [0, 1]
    assert len(classifiers) == 2


def test_penalty_is_chosen_on_dev():
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list("abcdefgh"), 8)) for _ in range(60)]
    labels = np.array([int("a" in text) for text in texts])
    choice, classifiers = choose_character_classifiers(texts[:40], texts[40:], labels[:40], labels[40:], [np.arange(40)], (1e4, 1e-2))
    accuracies = [
        choose_character_classifiers(texts[:40], texts[40:], labels[:40], labels[40:], [np.arange(40)], (penalty,))[0].dev_accuracy
        for penalty in (1e4, 1e-2)
    ]
    assert choice.dev_accuracy == max(accuracies)
    assert np.mean(classifiers[0].predict(texts[40:]) == labels[40:]) == choice.dev_accuracy


def test_seeds_train_on_their_rows():
    labels = LABELS.copy()
    labels[1::2] = 1 - labels[1::2]
    rows = np.arange(0, 40, 2)
    _, (classifier,) = choose_character_classifiers(TEXTS, ["light"], labels, np.array([0]), [rows])
    assert classifier.predict(["turn on the light", "what is the weather"]).tolist() == [0, 1]


def test_majority_label():
    assert majority_label(np.array([2, 1, 2, 0])) == 2
    assert majority_label(np.array([1, 0])) == 0


def test_bag_is_the_mean_of_the_rows_without_special_pieces():
    table = np.random.default_rng(1).normal(size=(10, 4)).astype(np.float32)
    texts = TokenisedTexts((np.array([2, 5, 7, 7, 3]), np.array([2, 3])), 0)
    bag = bag_of_embeddings(table, texts)
    np.testing.assert_allclose(bag[0], (table[5] + 2 * table[7]) / 3, rtol=1e-6)
    assert bag[1].tolist() == pytest.approx([0.0] * 4)


def test_one_seed_may_choose_for_all():
    texts = ["turn on the light", "light on", "open the door", "door open"] * 10
    labels = np.array([0, 0, 1, 1] * 10)
    subsets = [np.arange(40), np.arange(20), np.arange(8)]
    choice, classifiers = choose_character_classifiers(texts, texts[:4], labels, labels[:4], subsets, seeds_to_choose=1)
    all_choose, all_classifiers = choose_character_classifiers(texts, texts[:4], labels, labels[:4], subsets)
    assert len(classifiers) == len(all_classifiers) == 3
    assert choice.penalty == all_choose.penalty
    for one, other in zip(classifiers, all_classifiers, strict=True):
        assert (one.predict(texts) == other.predict(texts)).all()
