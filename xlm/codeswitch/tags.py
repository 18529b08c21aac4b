"""Which language each stretch of a mixed text is in, as far as its script says.

Script tells Chinese from English, not German from English: of the languages given, the first one that is
written in a run's script gets it. A script that none of them is written in is tagged ``und-Latn`` and the
like (BCP-47: an undetermined language in that script), so that a Latin word in Chinese text is another
language whether or not it was announced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import regex

from xlm.codeswitch.measures import NEUTRAL, Tag
from xlm.codeswitch.tokens import tokenise
from xlm.errors import UserError

# Unicode script name by ISO 15924 code, as far as this project's languages and their neighbours need them.
SCRIPTS = {
    "Arab": "Arabic",
    "Armn": "Armenian",
    "Beng": "Bengali",
    "Cyrl": "Cyrillic",
    "Deva": "Devanagari",
    "Ethi": "Ethiopic",
    "Geor": "Georgian",
    "Grek": "Greek",
    "Gujr": "Gujarati",
    "Guru": "Gurmukhi",
    "Hang": "Hangul",
    "Hani": "Han",
    "Hebr": "Hebrew",
    "Hira": "Hiragana",
    "Kana": "Katakana",
    "Khmr": "Khmer",
    "Knda": "Kannada",
    "Laoo": "Lao",
    "Latn": "Latin",
    "Mlym": "Malayalam",
    "Mymr": "Myanmar",
    "Sinh": "Sinhala",
    "Taml": "Tamil",
    "Telu": "Telugu",
    "Thai": "Thai",
}
# Scripts a language is usually written in; every language not named here is written in Latin.
_USUAL: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("ar", "fa", "ur"), ("Arab",)),
    **dict.fromkeys(("be", "bg", "kk", "mk", "mn", "ru", "sr", "uk"), ("Cyrl",)),
    **dict.fromkeys(("hi", "mr", "ne"), ("Deva",)),
    **{"am": ("Ethi",), "bn": ("Beng",), "el": ("Grek",), "gu": ("Gujr",), "he": ("Hebr",), "hy": ("Armn",), "ka": ("Geor",)},
    **{"km": ("Khmr",), "kn": ("Knda",), "lo": ("Laoo",), "ml": ("Mlym",), "my": ("Mymr",), "pa": ("Guru",), "si": ("Sinh",)},
    **{"ta": ("Taml",), "te": ("Telu",), "th": ("Thai",), "zh": ("Hani",)},
    **{"ja": ("Hira", "Kana", "Hani"), "ko": ("Hang", "Hani")},
}
_SUBTAG_SCRIPTS = {"Hans": ("Hani",), "Hant": ("Hani",), "Jpan": ("Hira", "Kana", "Hani"), "Kore": ("Hang", "Hani")}
_SCRIPT_OF = regex.compile("|".join(rf"(?P<{code}>\p{{Script={name}}})" for code, name in SCRIPTS.items()))


@dataclass(frozen=True, slots=True)
class Run:
    """Characters ``text[start:end]`` of one language, or of none (white space, digits, punctuation)."""

    start: int
    end: int
    language: Tag


def tag_by_script(text: str, languages: Sequence[str]) -> list[Run]:
    """Return language runs that cover the whole text, in order; `NEUTRAL` for characters without a script.

    With several languages in one script the first one named gets it. White space and punctuation belong
    to no language, even inside a sentence of one. Raises UserError where no language is named.
    """
    by_script = _language_of_script(languages)
    runs: list[Run] = []
    for position, character in enumerate(text):
        language = _tag(character, by_script, runs[-1].language if runs else NEUTRAL)
        if runs and runs[-1].language == language:
            runs[-1] = Run(runs[-1].start, position + 1, language)
        else:
            runs.append(Run(position, position + 1, language))
    return runs


def tag_tokens_by_script(text: str, languages: Sequence[str]) -> list[Tag]:
    """Return one tag a token (segmentation of `xlm.codeswitch.tokens`): that of its first character with a script."""
    by_script = _language_of_script(languages)
    tags: list[Tag] = []
    for token in tokenise(text):
        found = (_tag(character, by_script, NEUTRAL) for character in text[token.start : token.end])
        tags.append(next((tag for tag in found if tag is not None), NEUTRAL))
    return tags


def scripts_of(language: str) -> tuple[str, ...]:
    """Return the ISO 15924 codes of the scripts a BCP-47 language is written in."""
    base, *subtags = language.split("-")
    for subtag in subtags:
        if len(subtag) == 4:
            return _SUBTAG_SCRIPTS.get(subtag, (subtag,))
    return _USUAL.get(base, ("Latn",))


def _language_of_script(languages: Sequence[str]) -> dict[str, str]:
    if not languages:
        raise UserError("name at least one language to tag this text with.")
    found: dict[str, str] = {}
    for language in languages:
        for script in scripts_of(language):
            found.setdefault(script, language)
    return found


def _tag(character: str, by_script: dict[str, str], previous: Tag) -> Tag:
    match = _SCRIPT_OF.match(character)
    if match is not None:
        script = str(match.lastgroup)
        return by_script.get(script, f"und-{script}")
    # A combining mark and the prolonged sound mark have no script of their own: they stay with their letter.
    return previous if regex.match(r"\p{M}|[ー々]", character) else NEUTRAL
