import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from xlm.corpora.fold import fold, pair_key


def test_case_digits_punctuation_and_white_space_do_not_count():
    assert fold("Turn ON  the light!") == fold("turn on the light") == "turn on the light"
    assert fold("Port 8123") == fold("port 1") == "port 0"
    assert fold("e-mail") == fold("E – mail") == "e mail"
    assert fold("Straße") == fold("STRASSE")
    assert fold("Ｆｕｌｌ　ｗｉｄｔｈ") == "full width"
    assert fold("٣ ملفات") == fold("12 ملفات")


def test_marks_that_carry_vowels_stay_and_joiners_vanish():
    assert fold("क्रियाएँ") == unicodedata.normalize("NFKC", "क्रियाएँ")
    assert fold("می\u200cخواهم") == fold("میخواهم")
    assert fold("soft\u00adhyphen") == "softhyphen"


def test_nothing_but_punctuation_folds_to_nothing():
    assert fold(" …—!? ") == ""


@given(st.text())
def test_folding_twice_changes_nothing(text):
    once = fold(text)
    assert fold(once) == once
    assert once == " ".join(once.split())
    assert not any(unicodedata.category(character)[0] in "PSZC" and character != " " for character in once)


def test_the_key_is_that_of_the_folded_english_alone():
    assert pair_key("Save File…") == pair_key("save file")
    assert pair_key("save files") != pair_key("save file")
    assert len(pair_key("x")) == 16
    assert int(pair_key("x"), 16) >= 0
