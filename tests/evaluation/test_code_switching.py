"""The parts of the suite; the whole of it runs in tests/integration/test_evaluation_stages.py."""

import json

import numpy as np
import pytest

from xlm.codeswitch.generate import code_switched_intents
from xlm.corpora.documents import SentencePair
from xlm.corpora.store import write_pairs
from xlm.errors import UserError
from xlm.evaluation.code_switching import Outcome, cmi_buckets, describe, load_lexicons, switching_table, write_sentences
from xlm.tasks.evaluation_sets import IntentSentence

PAIRS = [SentencePair(source, source, target, "en", "de", "made up") for source, target in (("light", "Licht"), ("kitchen", "Küche"))]
SENTENCES = [
    IntentSentence("1", "light in the kitchen", "Light", "t1", "test"),
    IntentSentence("2", "open the door", "Door", "t2", "test"),
]


@pytest.fixture
def switched(tmp_path):
    write_pairs(tmp_path, "en_de", PAIRS)
    lexicons = load_lexicons(tmp_path, ("de",))
    return code_switched_intents(SENTENCES, lexicons["de"], "de", 1.0, 7)


def test_language_without_pairs_is_named(tmp_path):
    write_pairs(tmp_path, "en_de", PAIRS)
    with pytest.raises(UserError, match="names 'fr', but the corpus has no pairs en_fr; there are en_de"):
        load_lexicons(tmp_path, ("de", "fr"))


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
        Outcome(np.array([0.0, 9.9, 10.0, 50.0]), {"probe": np.array([1.0, 0.5, 0.0, 1.0]), "character_floor": np.zeros(4)}),
        Outcome(np.array([45.0]), {"probe": np.array([0.0]), "character_floor": np.ones(1)}),
    ]
    buckets = cmi_buckets(outcomes)
    assert [(bucket["low"], bucket["high"], bucket["sentences"]) for bucket in buckets] == [
        (0, 10, 2),
        (10, 20, 1),
        (20, 30, 0),
        (30, 40, 0),
        (40, 50, 2),
    ]
    assert [bucket["probe"] for bucket in buckets] == [75.0, 0.0, None, None, 50.0]
    assert buckets[-1]["character_floor"] == 50.0
    assert cmi_buckets([]) == []


def test_table_has_the_unswitched_line_first():
    systems = {"probe": {"accuracy": 80.0}, "character_floor": {"accuracy": 60.0}}
    cell = {"realised_share": 30.0, "mean_cmi": 20.0, "systems": systems}
    lines = switching_table({"english": {"systems": systems}, "languages": {"de": {"0.5": cell}}}).splitlines()
    assert lines[1].startswith("en, unswitched")
    assert lines[2].split() == ["de", "0.5", "30.0", "20.0", "80.0", "60.0"]
