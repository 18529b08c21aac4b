from hypothesis import given
from hypothesis import strategies as st

from xlm.config.recipe import RetrievalSection
from xlm.corpora.documents import SentencePair
from xlm.corpora.fold import fold, pair_key
from xlm.tasks.retrieval import draw_retrieval, is_dev_key

LETTERS = "abcdefghijklmnopqrst"


def _pair(source, target, language="de"):
    return SentencePair(pair_key(source), source, target, "en", language, "catalogue")


def _corpus(language="de", size=400):
    names = [f"{a}{b}{c}" for a in LETTERS for b in LETTERS for c in LETTERS[:2]][:size]
    return [_pair(f"please check {name} now", f"{name} jetzt {language}", language) for name in names]


SECTION = RetrievalSection(max_pool=50, pool_share=0.1, dev_pool=10)


def test_pools_have_the_declared_size_and_share_no_key():
    draw = draw_retrieval("de", _corpus(), SECTION, seed=1)
    assert (len(draw.test), len(draw.dev), draw.english_strings) == (40, 10, 400)
    assert not {pair.key for pair in draw.test} & {pair.key for pair in draw.dev}
    assert len(draw_retrieval("de", _corpus(size=800), SECTION, seed=1).test) == 50


def test_dev_keys_of_one_language_are_test_keys_of_none():
    draws = [draw_retrieval(language, _corpus(language, size), SECTION, seed=1) for language, size in (("de", 800), ("el", 300))]
    tests = {pair.key for draw in draws for pair in draw.test}
    devs = {pair.key for draw in draws for pair in draw.dev}
    assert not tests & devs
    assert all(is_dev_key(key, 1) for key in devs)
    assert not any(is_dev_key(key, 1) for key in tests)


def test_languages_prefer_the_same_english_strings():
    german = draw_retrieval("de", _corpus("de"), SECTION, seed=1)
    greek = draw_retrieval("el", _corpus("el")[::-1], SECTION, seed=1)
    assert [pair.key for pair in german.test] == [pair.key for pair in greek.test]
    assert [pair.key for pair in german.test] != [pair.key for pair in draw_retrieval("de", _corpus("de"), SECTION, seed=2).test]


def test_what_cannot_be_drawn_is_counted_by_reason():
    pairs = [
        *_corpus(size=100),
        _pair("two words", "zwei Wörter"),
        _pair("the same thing here", "The same thing here!"),
        _pair("one of two translations", "eine"),
        _pair("one of two translations", "andere"),
        _pair("a doubled but equal translation", "Gleich"),
        _pair("a doubled but equal translation", "gleich."),
        _pair("left hand side text", "geteilt"),
        _pair("right hand side text", "Geteilt"),
        _pair("word " * 50 + "end", "Ende"),
    ]
    draw = draw_retrieval("de", pairs, RetrievalSection(max_pool=1000, pool_share=1.0, dev_pool=1000), seed=0)
    assert draw.dropped == {
        "fewer than 3 English words": 1,
        "not translated": 1,
        "several translations": 1,
        "translation of several English texts": 2,
        "too long": 1,
    }
    assert len(draw.test) + len(draw.dev) == 101
    assert draw.english_strings == 107


WORDS = st.lists(st.sampled_from(["go", "Go", "up", "UP!", "the", "door", "7", "8"]), min_size=1, max_size=5).map(" ".join)


@given(st.lists(st.tuples(WORDS, WORDS), max_size=60), st.integers(0, 3))
def test_top1_is_well_defined_in_every_pool(texts, seed):
    pairs = [_pair(source, target) for source, target in texts]
    draw = draw_retrieval("de", pairs, RetrievalSection(max_pool=30, pool_share=1.0, dev_pool=30), seed)
    for pool in (draw.test, draw.dev):
        assert len({fold(pair.source) for pair in pool}) == len(pool)
        assert len({fold(pair.target) for pair in pool}) == len(pool)
        assert all(fold(pair.source) != fold(pair.target) for pair in pool)
    eligible = len({pair.key for pair in pairs}) - sum(draw.dropped.values())
    assert len(draw.test) + len(draw.dev) <= eligible
