"""Catalogue strings and running text as a reader sees them, or the reason why nobody would read them."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

import regex

from xlm.corpora.markup import visible_text
from xlm.corpora.placeholders import BrokenPluralError, tidy_holes, without_placeholders

AccessKey = Literal["none", "underscore", "ampersand"]
# More than this share of the letters in paths, identifiers, options and addresses makes a string code.
MAX_SYNTAX_SHARE = 0.5

# Soft hyphen, zero-width space, direction marks, byte order mark, object replacement: nothing to see.
# The joiners U+200C and U+200D stay, since Persian and the Indic scripts spell with them.
_UNSEEN = dict.fromkeys([0xAD, 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2060, 0x206A), 0xFEFF, 0xFFFC])
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# Nothing but these can start markup, a placeholder, an access key, a path or an identifier.
_SPECIAL = re.compile(r"[&<>{}%$`*_\[\]|\\/~@=#…]|\.[.\w]|--|^[-•+]|\n")

# Gramps declines its nouns in the catalogue, "И=жерминаль|Р=жерминаля|..."; a reader is shown one form.
_DECLINED = re.compile(r"^\w+=([^|=]+)(?:\|\w+=[^|=]+)+$")
_ACCESS_KEY_SUFFIX = re.compile(r"\s*[(（][&_]\w[)）]")
_AMPERSAND_START = re.compile(r"(?<![\w&])&(?=[^\W\d_])")
# Before a small letter only: a declared access key can still stand in a string that says AT&T.
_AMPERSAND_INSIDE = re.compile(r"(?<=[^\W\d_])&(?=[a-z])")
_UNDERSCORE_START = re.compile(r"(?<!\w)_(?=[^\W_])")
_UNDERSCORE_INSIDE = re.compile(r"(?<=[^\W_])_(?=[^\W_])")

_SNAKE_CASE = re.compile(r"(?<![^\W_])[a-z0-9]{3,}_[a-z0-9]{3,}(?![^\W_])", re.ASCII)

_WORD_CHARACTER = "[A-Za-z0-9]"
_SYNTAX = re.compile(
    rf"""
      [A-Za-z][A-Za-z0-9+.-]*://[^\s'"<>()]+ | www\.[!-~]+                        # addresses
    | [A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+                         # e-mail
    | (?<![\w/])[~.]{{0,2}}/[\w.*-]+(?:/[\w.*-]*)*                                # paths from the root
    | [A-Za-z0-9._*-]+(?:/[A-Za-z0-9._*-]+){{2,}}/? | [A-Za-z]:\\[!-~]+           # other paths
    | [\w*-]+\.(?:py|js|json|xml|html?|ya?ml|[mp]o|cfg|ini|txt|css|svg|png|jpe?g|pem|zip|gz|csv|pdf|sh|conf|db)\b
    | _*{_WORD_CHARACTER}+(?:_+{_WORD_CHARACTER}+)+_* | _{{2,}}\w+                  # snake_case
    | [A-Za-z_]\w*(?:\.[A-Za-z_]\w*){{2,}} | [A-Za-z_][A-Za-z0-9_.]*\(\)          # dotted names, calls
    | (?<!\w)--[a-z][\w-]+ | [A-Za-z_][A-Za-z0-9_-]*=[!-~]*                       # options, assignments
    | [A-Za-z]+:[a-z]+[=:]\S+ | </?[a-z][^<>]*> | \\[A-Za-z]+                     # tags, escapes
    """,
    re.VERBOSE | re.ASCII,
)
_LETTERS = regex.compile(r"\p{L}+")
# One Chinese or Japanese character says about as much as three letters of an alphabet.
_DENSE = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]+")
_DENSE_LETTERS = 3


@dataclass(frozen=True, slots=True)
class Drop:
    """Why a text is not used."""

    reason: str


def normalise(text: str, access_key: AccessKey = "none") -> str | Drop:
    """Return a catalogue string as its reader sees it, in NFC and with single spaces, or a `Drop` that says why not.

    ``access_key`` names the mark that a toolkit puts before the letter to press (GTK ``_``, Qt ``&``);
    inside words it is only taken for one where the manifest says so, since AT&T and snake_case exist.
    """
    if access_key != "none":
        text = _without_access_key(text, access_key)
    if _SPECIAL.search(text):
        try:
            text = without_placeholders(_DECLINED.sub(r"\1", text))
        except BrokenPluralError:
            return Drop("broken ICU plural")
        text = _ACCESS_KEY_SUFFIX.sub("", visible_text(text))
        text = _AMPERSAND_START.sub("", text)
        text = _single_spaced(text)
        if _mostly_syntax(text):
            return Drop("mostly syntax")
        text = tidy_holes(text)
    text = _single_spaced(text)
    if not text:
        return Drop("empty")
    if not any(map(str.isalpha, text)):
        return Drop("no words")
    return text


def normalise_running_text(text: str) -> str | Drop:
    """Return running text in NFC with single spaces; markup is left alone, since prose may speak of it."""
    text = _single_spaced(text)
    if not text:
        return Drop("empty")
    if not any(map(str.isalpha, text)):
        return Drop("no words")
    return text


def _single_spaced(text: str) -> str:
    if not text.isascii():
        text = unicodedata.normalize("NFC", text).translate(_UNSEEN)
    if not text.isprintable():
        text = _CONTROL.sub(" ", text)
    return " ".join(text.split())


def _without_access_key(text: str, access_key: AccessKey) -> str:
    text = _ACCESS_KEY_SUFFIX.sub("", text)
    if access_key == "ampersand":
        return _AMPERSAND_INSIDE.sub("", _AMPERSAND_START.sub("", text))
    # A name such as %(death_date)s or file_name has underscores of its own; a mnemonic is the only one of its string.
    if text.count("_") == 1 and "%(" not in text and "{" not in text and not _SNAKE_CASE.search(text):
        return _UNDERSCORE_INSIDE.sub("", _UNDERSCORE_START.sub("", text))
    return text


def _mostly_syntax(text: str) -> bool:
    syntax = sum(_amount(found[0]) for found in _SYNTAX.finditer(text))
    return syntax > 0 and syntax > MAX_SYNTAX_SHARE * _amount(text)


def _amount(text: str) -> int:
    """Return the number of letters in ``text``, dense scripts weighted."""
    letters = sum(map(len, _LETTERS.findall(text)))
    return letters if text.isascii() else letters + (_DENSE_LETTERS - 1) * sum(map(len, _DENSE.findall(text)))
