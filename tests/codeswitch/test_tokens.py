import itertools

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from xlm.codeswitch.tokens import tokenise


def _split(text):
    return [text[token.start : token.end] for token in tokenise(text)]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("What's on my living-room list?", ["What's", "on", "my", "living-room", "list"]),
        ("l’heure d'été", ["l’heure", "d'été"]),
        ("周末我们去hiking，好吗？", ["周", "末", "我", "们", "去", "hiking", "好", "吗"]),
        ("スイッチを入れて", ["ス", "イ", "ッ", "チ", "を", "入", "れ", "て"]),
        ("ราคา 20 บาท", ["ร", "า", "ค", "า", "20", "บ", "า", "ท"]),
        ("हिन्दी में बोलो", ["हिन्दी", "में", "बोलो"]),
        ("اُردو عربي", ["اُردو", "عربي"]),
        ("- ' -", []),
        ("a--b 'c'", ["a", "b", "c"]),
    ],
)
def test_words_and_characters(text, tokens):
    assert _split(text) == tokens


def test_unspaced_scripts_are_marked():
    assert [token.unspaced for token in tokenise("去 hiking ラーメン")] == [True, False, True, True, True, True]


@given(st.text(max_size=60))
def test_tokens_cover_every_letter_and_digit_in_order(text):
    tokens = tokenise(text)
    assert all(one.end <= two.start for one, two in itertools.pairwise(tokens))
    covered = {position for token in tokens for position in range(token.start, token.end)}
    needed = {position for position, character in enumerate(text) if regex.match(r"[\p{L}\p{N}]", character)}
    assert needed <= covered
