import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlm.codeswitch.lexicon import MOST_TRANSLATIONS, Lexicon
from xlm.codeswitch.tokens import tokenise
from xlm.corpora.documents import SentencePair
from xlm.corpora.fold import pair_key
from xlm.errors import UserError


def _pairs(*texts, source="en", target="de"):
    return [SentencePair(pair_key(english), english, other, source, target, "catalogue") for english, other in texts]


PAIRS = _pairs(
    ("Kitchen", "Küche"),
    ("Turn off", "Ausschalten"),
    ("turn", "drehen"),
    ("Living room light", "Wohnzimmerlicht"),
    ("One two three four", "eins zwei drei vier"),
    ("Save?", "Speichern"),
    ("Router", "Router"),
    ("Channel 5", "Kanal 5"),
    ("Mute", "den Ton jetzt sofort ganz und gar ausschalten"),
    ("light", "Licht"),
    ("Light", "leicht"),
    ("LIGHT", "Licht"),
)


def test_entries_have_one_to_three_words_of_letters_on_both_sides():
    lexicon = Lexicon.from_pairs(PAIRS)
    assert dict(lexicon.entries) == {
        "kitchen": ("Küche",),
        "light": ("Licht", "leicht"),
        "living room light": ("Wohnzimmerlicht",),
        "turn": ("drehen",),
        "turn off": ("Ausschalten",),
    }
    assert (lexicon.source_language, lexicon.language, len(lexicon)) == ("en", "de", 5)


def test_the_lexicon_does_not_depend_on_the_order_of_the_pairs():
    more = [*PAIRS, *_pairs(*[("bank", f"{letter}ank") for letter in "zyxwvu"])]
    lexicon = Lexicon.from_pairs(more)
    assert lexicon == Lexicon.from_pairs(more[::-1])
    assert lexicon.entries["bank"] == ("uank", "vank", "wank", "xank")
    assert len(lexicon.entries["bank"]) == MOST_TRANSLATIONS


def test_one_spelling_a_translation():
    lexicon = Lexicon.from_pairs(_pairs(("off", "Aus"), ("off", "aus"), ("off", "aus"), ("off", "weg")))
    assert lexicon.entries["off"] == ("aus", "weg")


def test_the_longest_entry_wins_and_punctuation_parts_entries():
    lexicon = Lexicon.from_pairs(PAIRS)

    def match(text, position):
        return lexicon.longest_match(text, tokenise(text), position)[0]

    assert match("Turn OFF the light", 0) == 2
    assert match("turn, off", 0) == 1
    assert match("turn on", 0) == 1
    assert match("the living room light", 1) == 3
    assert match("the living room lamp", 1) == 0


def test_coverage_counts_words():
    lexicon = Lexicon.from_pairs(PAIRS)
    coverage = lexicon.coverage(["turn off the kitchen light", "hello"])
    assert (coverage.words, coverage.covered) == (6, 4)
    assert coverage.share == pytest.approx(4 / 6)
    assert lexicon.coverage([]).share == 0.0


def test_chinese_entries_match_by_character():
    lexicon = Lexicon.from_pairs(
        _pairs(("厨房", "kitchen"), ("打开", "open"), ("非常非常非常非常长", "long"), source="zh-Hans", target="en")
    )
    assert set(lexicon.entries) == {"厨房", "打开"}
    text = "打开厨房灯"
    assert lexicon.longest_match(text, tokenise(text), 2) == (2, ("kitchen",))


def test_pairs_of_several_corpora_are_refused():
    with pytest.raises(UserError, match="found en-de, en-el"):
        Lexicon.from_pairs([*PAIRS, *_pairs(("a", "b"), target="el")])
    with pytest.raises(UserError, match="no pairs at all"):
        Lexicon.from_pairs([])


@given(seed=st.integers(0, 2**31), entries=st.sets(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=3).map(" ".join)))
def test_no_word_is_in_both_halves(seed, entries):
    whole = Lexicon("en", "de", {entry: (entry.upper(),) for entry in sorted(entries)})
    first, second = whole.halves(seed)
    words = [{word for entry in half.entries for word in entry.split()} for half in (first, second)]
    assert words[0].isdisjoint(words[1])
    assert {**first.entries, **second.entries}.items() <= whole.entries.items()
    # Left out are entries with a word of each half, and no others; an entry of one word is always in one.
    every, _ = Lexicon("en", "de", {word: (word,) for word in "abcdefgh"}).halves(seed)
    for entry in whole.entries:
        fallen = {word in every.entries for word in entry.split()}
        assert (entry in first.entries, entry in second.entries) == (fallen == {True}, fallen == {False})


@given(st.integers(0, 2**31), st.dictionaries(st.sampled_from("abcdefgh"), st.sets(st.sampled_from("UVWuvw"), min_size=1), min_size=1))
def test_no_translation_is_in_both_halves(seed, translations):
    whole = Lexicon("en", "de", {entry: tuple(sorted(found)) for entry, found in translations.items()})
    first, second = whole.halves(seed)
    seen = [{one.lower() for found in half.entries.values() for one in found} for half in (first, second)]
    assert seen[0].isdisjoint(seen[1])
    assert all(found for half in (first, second) for found in half.entries.values())
    fallen, _ = Lexicon("en", "de", {entry: (entry,) for entry in translations}).halves(seed)
    for entry in fallen.entries:  # of what fell to the first half only what the second takes is missing
        assert {one.lower() for one in first.entries.get(entry, ())} == {one.lower() for one in translations[entry]} - seen[1]
