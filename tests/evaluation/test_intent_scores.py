import numpy as np
import pytest
from sklearn.metrics import f1_score

from xlm.evaluation.intent_scores import IntentScores, dev_accuracy, english_dev
from xlm.evaluation.intent_systems import CHANCE, CHARACTER_FLOOR, PROBE, System
from xlm.evaluation.intent_task import IntentTask, Sentences

SEEDS = (1, 2, 3)


def made_up_test(count, state, labels=4):
    rng = np.random.default_rng(state)
    gold = rng.integers(0, labels, size=count)
    return Sentences(tuple(map(str, range(count))), ("",) * count, gold, tuple(f"t{n // 4}" for n in range(count)))


def guesses(gold, accuracy, state, labels=4, seeds=3):
    rng = np.random.default_rng(state)
    wrong = (gold + rng.integers(1, labels, size=(seeds, len(gold)))) % labels
    return np.where(rng.random((seeds, len(gold))) < accuracy, gold, wrong)


@pytest.fixture(scope="module")
def task():
    tests = {language: made_up_test(200, number) for number, language in enumerate(("en", "de", "el", "ja"))}
    unanswerable = {"en": {}, "de": {"Music": 3}, "el": {}, "ja": {}}
    return IntentTask(("a", "b", "c", "d"), tests["en"], tests["en"], tests, unanswerable, {}, SEEDS, ())


@pytest.fixture(scope="module")
def systems(task):
    probe = System(PROBE, {name: guesses(test.labels, 0.6, 10) for name, test in task.tests.items()}, 61.0, {"penalty": 1.0})
    floor = System(CHARACTER_FLOOR, {name: guesses(test.labels, 0.3, 20) for name, test in task.tests.items()}, 33.0)
    chance = System(CHANCE, {name: np.zeros((1, len(test)), dtype=np.int64) for name, test in task.tests.items()})
    return [probe, floor, chance]


@pytest.fixture(scope="module")
def scores(task, systems):
    return IntentScores(task, systems, bootstrap_samples=500, mean_languages=("de", "el"), shown_only=("ja",))


def test_accuracy_and_f1_are_those_of_the_predictions(task, systems, scores):
    entry = scores.by_language()["de"]
    predictions, gold = systems[0].predictions["de"], task.tests["de"].labels
    probe = entry["systems"]["probe"]
    assert probe["accuracy"] == pytest.approx(100 * (predictions == gold).mean(), abs=1e-3)
    f1 = [100 * f1_score(gold, row, average="macro", labels=np.unique(gold)) for row in predictions]
    assert probe["macro_f1"] == pytest.approx(np.mean(f1), abs=1e-3)
    assert list(probe["seeds"]) == ["1", "2", "3"]
    assert probe["seeds"]["2"]["accuracy"] == pytest.approx(100 * (predictions[1] == gold).mean(), abs=1e-3)
    assert probe["interval"][0] < probe["accuracy"] < probe["interval"][1]


def test_a_language_says_how_large_it_is_and_what_it_lacks(scores):
    entry = scores.by_language()
    assert entry["de"]["sentences"] == 200
    assert entry["de"]["templates"] == 50
    assert entry["de"]["unanswerable"] == {"Music": 3}
    assert entry["ja"]["shown_only"]
    assert not entry["de"]["shown_only"]


def test_differences_are_those_of_the_accuracies(scores):
    for entry in scores.by_language().values():
        difference = entry["differences"]["probe-character_floor"]
        systems = entry["systems"]
        assert difference["gain"] == pytest.approx(systems["probe"]["accuracy"] - systems["character_floor"]["accuracy"], abs=2e-3)
        assert difference["interval"][0] < difference["gain"] < difference["interval"][1]
        assert difference["interval"][0] > 0
    assert set(entry["differences"]) == {"probe-character_floor"}  # no finetuned, no random encoder here


def test_system_without_seeds_has_none(scores):
    chance = scores.by_language()["en"]["systems"]["chance"]
    assert chance["seeds"] == {}
    assert 10 < chance["accuracy"] < 40


def test_means_run_over_the_mean_languages_only(scores):
    languages = scores.by_language()
    expected = np.mean([languages[name]["systems"]["probe"]["accuracy"] for name in ("de", "el")])
    assert scores.means()["intents.probe"] == pytest.approx(expected, abs=2e-3)
    gain = np.mean([languages[name]["differences"]["probe-character_floor"]["gain"] for name in ("de", "el")])
    mean = scores.mean_differences()["probe-character_floor"]
    assert mean["gain"] == pytest.approx(gain, abs=2e-3)
    one = languages["de"]["differences"]["probe-character_floor"]["interval"]
    assert mean["interval"][1] - mean["interval"][0] < one[1] - one[0]


def test_no_mean_languages_no_means(task, systems):
    scores = IntentScores(task, systems, bootstrap_samples=100, mean_languages=())
    assert scores.means() == {}
    assert scores.mean_differences() == {}


def test_a_seed_that_answers_one_label_is_flagged(task, systems):
    stuck = {name: rows.copy() for name, rows in systems[0].predictions.items()}
    stuck["el"][1] = 2
    scores = IntentScores(task, [System(PROBE, stuck), systems[2]], bootstrap_samples=100, mean_languages=())
    assert scores.collapsed() == {"probe": {"el": [2]}}  # chance is meant to be one label


def test_what_dev_chose_is_reported(systems):
    assert english_dev(systems) == {
        "probe": {"penalty": 1.0, "english_dev_accuracy": 61.0},
        "character_floor": {"english_dev_accuracy": 33.0},
        "chance": {},
    }


def test_means_are_given_without_dev_languages_too(task, systems):
    scores = IntentScores(task, systems, bootstrap_samples=100, mean_languages=("de", "el"), dev_languages=("el",))
    means, entries = scores.means(), scores.by_language()
    assert means["intents.probe.without_dev"] == entries["de"]["systems"]["probe"]["accuracy"]
    both = [entries[language]["systems"]["chance"]["accuracy"] for language in ("de", "el")]
    assert means["intents.chance"] == pytest.approx(np.mean(both), abs=1e-3)
    assert means["intents.chance.without_dev"] == both[0] != both[1]
    assert (entries["el"]["dev_language"], entries["de"]["dev_language"]) == (True, False)
    plain = IntentScores(task, systems, bootstrap_samples=100, mean_languages=("de", "el"), dev_languages=("ja",)).means()
    assert not any("without_dev" in name for name in plain)


def test_dev_accuracy_is_of_systems_that_have_it():
    system = System(PROBE, {}, dev_sets={"es": 40.0, "ru": 50.0})
    assert dev_accuracy([system, System(CHANCE, {})]) == {"probe": {"es": 40.0, "ru": 50.0, "mean": 45.0}}
