"""Where words begin and end: the one segmentation rule of lexicons, generators, tags and measures.

A word is a run of letters, marks and digits, with apostrophes and hyphens inside it (``l'heure``,
``what's``, ``living-room``). Chinese, Japanese, Thai, Lao, Khmer and Burmese put no spaces between words,
and no segmenter for them is assumed: there each character with its marks is a token of its own, as in the
mixed error rate of Mandarin-English speech (SEAME, Lyu et al. 2010). A Latin run inside such text is a
word as anywhere else. Everything else (punctuation, symbols, white space) is no token.
"""

from __future__ import annotations

from dataclasses import dataclass

import regex

# For use inside [...]. Prolonged sound and iteration marks (ー 々) are letters without a script of their own.
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}ー々"
_UNSPACED_TOKEN = rf"[{UNSPACED}][\p{{M}}]*"
_SPACED_CHARACTER = rf"(?![{UNSPACED}])[\p{{L}}\p{{M}}\p{{N}}]"
_TOKEN = regex.compile(rf"{_UNSPACED_TOKEN}|(?:{_SPACED_CHARACTER})+(?:['’\-](?:{_SPACED_CHARACTER})+)*", regex.VERSION1)
_STARTS_UNSPACED = regex.compile(rf"[{UNSPACED}]")


@dataclass(frozen=True, slots=True)
class Token:
    """One token: ``text[start:end]``; ``unspaced`` for a character of a script that has no spaces between words."""

    start: int
    end: int
    unspaced: bool


def tokenise(text: str) -> list[Token]:
    """Return the tokens of a text in order; they never overlap."""
    return [Token(match.start(), match.end(), _STARTS_UNSPACED.match(text, match.start()) is not None) for match in _TOKEN.finditer(text)]
