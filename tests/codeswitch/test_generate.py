from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlm.codeswitch.generate import code_switched_intents, switch_text
from xlm.codeswitch.lexicon import Lexicon
from xlm.codeswitch.measures import cmi
from xlm.codeswitch.tokens import tokenise
from xlm.errors import UserError

GERMAN = Lexicon("en", "de", {"kitchen": ("Küche", "Kochstube"), "light": ("Licht",), "turn off": ("Ausschalten",), "turn": ("drehen",)})
CHINESE = Lexicon("en", "zh-Hans", {"kitchen": ("厨房",), "turn": ("转",), "the": ("这",)})
ENGLISH = Lexicon("zh-Hans", "en", {"厨房": ("kitchen",), "打开": ("turn on",), "灯": ("light",)})


@dataclass(frozen=True)
class Labelled:
    id: str
    text: str
    label: str


def _switch(text, rate=1.0, lexicons=None, seed=0, epoch=0, key="k", language="en", lower=False):
    return switch_text(text, language, lexicons or {"de": GERMAN}, rate, seed=seed, epoch=epoch, key=key, lower=lower)


def test_at_rate_one_everything_the_lexicon_has_is_switched():
    switched = _switch("Please turn off the light, thanks!")
    assert switched.text == "Please Ausschalten the Licht, thanks!"
    assert switched.tags == ("en", "de", "en", "de", "en")
    assert (switched.words, switched.covered, switched.switched) == (6, 3, 3)
    assert switched.realised_share == pytest.approx(0.5)
    assert switched.cmi == pytest.approx(cmi(switched.tags)) == pytest.approx(40.0)


def test_at_rate_zero_nothing_is():
    switched = _switch("Turn off the light", rate=0.0)
    assert switched.text == "Turn off the light"
    assert switched.tags == ("en",) * 4
    assert (switched.covered, switched.switched, switched.cmi) == (3, 0, 0.0)


def test_text_outside_the_lexicon_stays_as_it_is():
    text = "  Ünïcode – “quoted”,\ttabs and 20 % …"
    assert _switch(text).text == text
    assert _switch("").text == ""
    assert _switch("").realised_share == 0.0


def test_translations_languages_and_decisions_are_uniform():
    draws = [_switch("kitchen", lexicons={"de": GERMAN, "zh-Hans": CHINESE}, key=f"k{n}").text for n in range(3000)]
    assert draws.count("厨房") / 3000 == pytest.approx(1 / 2, abs=0.04)
    assert draws.count("Küche") / 3000 == pytest.approx(1 / 4, abs=0.04)
    assert draws.count("Kochstube") / 3000 == pytest.approx(1 / 4, abs=0.04)
    switched = [_switch("light kitchen", rate=0.3, key=f"k{n}") for n in range(2000)]
    assert sum(one.switched for one in switched) / 4000 == pytest.approx(0.3, abs=0.03)


def test_a_draw_depends_on_seed_epoch_and_key_alone():
    text = "kitchen light turn kitchen light turn kitchen"
    base = _switch(text, rate=0.5)
    assert base == _switch(text, rate=0.5)
    for change in ({"seed": 1}, {"epoch": 1}, {"key": "other"}):
        assert any(_switch(text + " light" * n, rate=0.5, **change) != _switch(text + " light" * n, rate=0.5) for n in range(4))


def test_a_new_entry_leaves_the_draws_of_other_words_alone():
    text = "please kitchen light please note kitchen light please"
    more = Lexicon("en", "de", {**GERMAN.entries, "please": ("bitte",), "please note": ("Achtung",)})
    changed = {"please", "note", "bitte", "Achtung"}
    for key in "abcdef":
        before = _switch(text, rate=0.5, key=key).text.split()
        after = _switch(text, rate=0.5, key=key, lexicons={"de": more}).text.split()
        assert [one for one in after if one not in changed] == [one for one in before if one not in changed]


@given(
    st.lists(st.sampled_from(["kitchen", "light", "turn", "off", "厨房", "打开", "灯", "hiking", ",", " ", "-", "'", "20"]), max_size=15),
    st.floats(0, 1),
    st.booleans(),
)
def test_every_token_of_the_result_has_its_tag(pieces, rate, chinese):
    text = "".join(pieces)
    lexicons = {"en": ENGLISH} if chinese else {"de": GERMAN, "zh-Hans": CHINESE}
    switched = _switch(text, rate, lexicons, language="zh-Hans" if chinese else "en")
    assert len(tokenise(switched.text)) == len(switched.tags)
    assert switched.switched <= switched.covered <= switched.words == len(tokenise(text))
    if not switched.switched:
        assert switched.text == text


def test_words_put_into_chinese_stand_apart():
    switched = _switch("请打开厨房灯吧", lexicons={"en": ENGLISH}, language="zh-Hans")
    assert switched.text == "请turn on kitchen light吧"
    assert switched.tags == ("zh-Hans", "en", "en", "en", "en", "zh-Hans")


def test_intents_keep_everything_but_their_text():
    sentences = [Labelled("1", "turn off the light", "A"), Labelled("2", "good morning", "B")]
    result = code_switched_intents(sentences, GERMAN, "de", 1.0, seed=3)
    assert result.sentences == (Labelled("1", "ausschalten the licht", "A"), sentences[1])
    assert (result.unswitched, result.uncovered) == (1, 1)
    assert result.realised_share == result.coverage == pytest.approx(3 / 6)
    assert result.mean_cmi == pytest.approx((100 / 3 + 0) / 2)
    assert code_switched_intents(sentences, GERMAN, "de", 0.0, seed=3).unswitched == 2
    assert code_switched_intents(sentences, GERMAN, "de", 0.0, seed=3).uncovered == 1
    assert code_switched_intents([], GERMAN, "de", 0.5, seed=3).realised_share == 0.0


def test_mistakes_are_sentences():
    with pytest.raises(UserError, match=r"from 0 to 1; found 1\.5"):
        _switch("a", rate=1.5)
    with pytest.raises(UserError, match="lexicon of at least one language"):
        switch_text("a", "en", {}, 0.5, seed=0, epoch=0, key="k")
    with pytest.raises(UserError, match="translates into 'de', not into 'el'"):
        code_switched_intents([], GERMAN, "el", 0.5, seed=0)
