import pytest

from xlm.corpora.documents import SentencePair
from xlm.corpora.store import write_pairs
from xlm.errors import UserError
from xlm.evaluation.lexicons import lexicon_record, load_lexicons

WORDS = ("light", "kitchen", "door", "window", "lamp", "garden", "open", "close")


@pytest.fixture
def corpus(tmp_path):
    for language in ("de", "fr"):
        pairs = [SentencePair(word, word, f"{word.upper()} {language}", "en", language, "made up") for word in (*WORDS, "open door")]
        write_pairs(tmp_path, f"en_{language}", pairs)
    return tmp_path


def test_halves_are_disjoint_and_the_same_in_every_language(corpus):
    lexicons = load_lexicons(corpus, ("de", "fr"), 3, "k")
    assert set(lexicons.training["de"].entries) == set(lexicons.training["fr"].entries)
    words = [{word for entry in half["de"].entries for word in entry.split()} for half in (lexicons.training, lexicons.test)]
    assert words[0] & words[1] == set()
    assert words[0] | words[1] == set(WORDS)
    assert lexicons.left_out["de"] == 9 - len(lexicons.training["de"]) - len(lexicons.test["de"])


def test_a_language_without_pairs_is_named(corpus):
    with pytest.raises(UserError, match=r"^some\.key names 'es', but the corpus has no pairs en_es; there are en_de, en_fr"):
        load_lexicons(corpus, ("de", "es"), 3, "some.key")


def test_the_record_counts_what_is_covered(corpus):
    lexicons = load_lexicons(corpus, ("de",), 3, "k")
    known = sorted(entry for entry in lexicons.test["de"].entries if " " not in entry)[0]
    record = lexicon_record(lexicons.test, lexicons.left_out, [f"{known} zebra"])
    assert record == {"de": {"entries": len(lexicons.test["de"]), "left_out": lexicons.left_out["de"], "coverage": 50.0}}
