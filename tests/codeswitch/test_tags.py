import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlm.codeswitch.measures import cmi
from xlm.codeswitch.tags import Run, scripts_of, tag_by_script, tag_tokens_by_script
from xlm.codeswitch.tokens import tokenise
from xlm.errors import UserError

MIXED = "周末我们打算去做hiking，你想一起来吗？"


def _named(text, languages):
    return [(text[run.start : run.end], run.language) for run in tag_by_script(text, languages)]


def test_a_latin_word_in_chinese_text_is_another_language():
    assert _named(MIXED, ["zh-Hans", "en"]) == [
        ("周末我们打算去做", "zh-Hans"),
        ("hiking", "en"),
        ("，", None),
        ("你想一起来吗", "zh-Hans"),
        ("？", None),
    ]
    assert _named(MIXED, ["zh-Hans"])[1] == ("hiking", "und-Latn")


@pytest.mark.parametrize(
    ("text", "languages", "expected"),
    [
        ("مرحبا hello", ["ar", "en"], [("مرحبا", "ar"), (" ", None), ("hello", "en")]),
        ("это Kitchen", ["ru", "de", "en"], [("это", "ru"), (" ", None), ("Kitchen", "de")]),
        ("हिन्दी में", ["hi"], [("हिन्दी", "hi"), (" ", None), ("में", "hi")]),
        ("ラーメンを食べる", ["ja"], [("ラーメンを食べる", "ja")]),
        ("日本", ["zh-Hans", "ja"], [("日本", "zh-Hans")]),
        ("e\u0301te\u0301 12", ["fr"], [("e\u0301te\u0301", "fr"), (" 12", None)]),
    ],
)
def test_scripts_decide(text, languages, expected):
    assert _named(text, languages) == expected


@given(st.text(max_size=40), st.lists(st.sampled_from(["en", "zh-Hans", "ar", "ja", "ru"]), min_size=1, max_size=3))
def test_runs_cover_the_text_without_gaps(text, languages):
    runs = tag_by_script(text, languages)
    assert "".join(text[run.start : run.end] for run in runs) == text
    assert all(one.language != two.language for one, two in itertools.pairwise(runs))
    assert len(tag_tokens_by_script(text, languages)) == len(tokenise(text))


def test_tokens_are_tagged_for_the_measures():
    tags = tag_tokens_by_script(MIXED, ["zh-Hans", "en"])
    assert tags.count("zh-Hans") == 14
    assert tags.count("en") == 1
    assert cmi(tags) == pytest.approx(100 / 15)
    assert tag_tokens_by_script("20 лет", ["ru"]) == [None, "ru"]


def test_languages_know_their_scripts():
    assert scripts_of("en") == ("Latn",)
    assert scripts_of("zh-Hans") == scripts_of("zh-Hant-TW") == ("Hani",)
    assert scripts_of("sr-Latn") == ("Latn",)
    assert scripts_of("sr") == ("Cyrl",)
    assert scripts_of("ja") == ("Hira", "Kana", "Hani")


def test_no_text_and_no_language():
    assert tag_by_script("", ["en"]) == []
    assert tag_by_script("?", ["en"]) == [Run(0, 1, None)]
    with pytest.raises(UserError, match="at least one language"):
        tag_by_script("a", [])
