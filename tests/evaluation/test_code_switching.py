"""The parts of the suite; the whole of it runs in tests/integration/test_evaluation_stages.py."""

import json

import numpy as np
import pytest

from xlm.codeswitch.generate import code_switched_intents
from xlm.codeswitch.lexicon import Lexicon
from xlm.corpora.documents import SentencePair
from xlm.evaluation.code_switching import FEWEST_TESTED, Outcome, cmi_buckets, describe, switching_table, write_sentences
from xlm.tasks.evaluation_sets import LabelledText

PAIRS = [SentencePair(source, source, target, "en", "de", "made up") for source, target in (("light", "Licht"), ("kitchen", "Küche"))]
SENTENCES = [
    LabelledText("1", "light in the kitchen", "Light", "t1", "test"),
    LabelledText("2", "open the door", "Door", "t2", "test"),
]


@pytest.fixture
def switched():
    return code_switched_intents(SENTENCES, Lexicon.from_pairs(PAIRS), "de", 1.0, 7)


def test_a_set_says_what_became_of_it(switched):
    assert switched.sentences[0].text == "licht in the küche"
    assert describe(switched) == {"sentences": 2, "unswitched": 1, "uncovered": 1, "realised_share": 28.571, "mean_cmi": 25.0}


def test_sentences_are_written_with_their_index(switched, tmp_path):
    write_sentences(tmp_path / "sets" / "de-1.jsonl", switched)
    first, second = map(json.loads, (tmp_path / "sets" / "de-1.jsonl").read_text(encoding="utf-8").splitlines())
    assert first == {
        "id": "1",
        "text": "licht in the küche",
        "label": "Light",
        "template": "t1",
        "cmi": 50.0,
        "switched_share": 50.0,
    }
    assert (second["cmi"], second["switched_share"]) == (0.0, 0.0)


def test_buckets_share_out_every_sentence():
    outcomes = [
        Outcome(np.array([0.0, 9.9]), {"probe": np.array([[1.0, 1.0], [1.0, 0.0]]), "character_floor": np.zeros((2, 2))}),
        Outcome(np.array([10.0, 50.0]), {"probe": np.array([[0.0, 1.0]] * 2), "character_floor": np.zeros((2, 2))}),
        Outcome(np.array([0.0, 45.0]), {"probe": np.array([[1.0, 0.0]] * 2), "character_floor": np.ones((2, 2))}),
    ]
    buckets = cmi_buckets(outcomes, ["a", "b"], 100)
    assert [(bucket["low"], bucket["high"], bucket["sentences"]) for bucket in buckets] == [
        (0, 10, 3),
        (10, 20, 1),
        (20, 30, 0),
        (30, 40, 0),
        (40, 50, 2),
    ]
    assert [bucket["probe"] for bucket in buckets] == [83.333, 0.0, None, None, 50.0]
    assert buckets[-1]["character_floor"] == 50.0
    assert all(bucket["differences"] is None for bucket in buckets)
    assert cmi_buckets([], [], 100) == []


def test_only_buckets_with_sentences_enough_are_tested():
    rng, small = np.random.default_rng(1), FEWEST_TESTED - 1
    cmi = np.repeat([5.0, 15.0], [FEWEST_TESTED, small])
    templates = [f"t{number % 20}" for number in range(len(cmi))]
    floor = rng.integers(0, 2, size=(3, len(cmi))).astype(float)
    [tested, shown, *_] = cmi_buckets([Outcome(cmi, {"probe": np.ones_like(floor), "character_floor": floor})], templates, 500)
    gain = tested["differences"]["probe-character_floor"]
    assert gain["gain"] == pytest.approx(100 * (1 - floor[:, :FEWEST_TESTED].mean()), abs=1e-3)
    assert 0 < gain["interval"][0] < gain["gain"] < gain["interval"][1]
    assert (shown["sentences"], shown["differences"]) == (small, None)


def test_table_has_the_unswitched_line_first():
    systems = {"probe": {"accuracy": 80.0}, "code_switched_training": {"accuracy": 90.0}, "character_floor": {"accuracy": 60.0}}
    cell = {"realised_share": 30.0, "mean_cmi": 20.0, "systems": systems}
    lines = switching_table({"english": {"systems": systems}, "languages": {"de": {"0.5": cell}}}).splitlines()
    assert lines[1].startswith("en, unswitched")
    assert lines[2].split() == ["de", "0.5", "30.0", "20.0", "80.0", "90.0", "60.0"]
