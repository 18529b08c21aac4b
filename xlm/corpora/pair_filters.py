"""Whether two texts can be translations of each other, judged by themselves alone."""

from __future__ import annotations

import regex

from xlm.corpora.fold import fold
from xlm.corpora.script import wrong_script

# One Chinese or Japanese character stands for about three letters of an alphabet.
_DENSE = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]+")
_DENSE_LETTERS = 3
MAX_LENGTH_RATIO = 3.0
# Added to both lengths: "OK" may well be five times as long in another language.
_LENGTH_SLACK = 12

EMPTY_WHEN_FOLDED = "no words"
WRONG_SCRIPT = "wrong script"
IDENTICAL = "identical to the source"
LENGTH_RATIO = "length ratio"


def text_problem(text: str, language: str) -> str | None:
    """Return why a text is no text of its language, or None."""
    return WRONG_SCRIPT if wrong_script(text, language) else None


def pair_problem(source: str, target: str, source_language: str, target_language: str) -> str | None:
    """Return why two normalised texts do not make a pair, or None."""
    folded_source, folded_target = fold(source), fold(target)
    if not folded_source or not folded_target:
        return EMPTY_WHEN_FOLDED
    if folded_source == folded_target:
        return IDENTICAL
    if wrong_script(target, target_language) or wrong_script(source, source_language):
        return WRONG_SCRIPT
    if length_ratio(source, target) > MAX_LENGTH_RATIO:
        return LENGTH_RATIO
    return None


def length_ratio(source: str, target: str) -> float:
    """Return how many times longer one text is than the other, in letters of an alphabet, at least 1."""
    lengths = sorted((_length(source) + _LENGTH_SLACK, _length(target) + _LENGTH_SLACK))
    return lengths[1] / lengths[0]


def _length(text: str) -> int:
    if text.isascii():
        return len(text)
    return len(text) + (_DENSE_LETTERS - 1) * sum(map(len, _DENSE.findall(text)))
