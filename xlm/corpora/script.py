"""Which script a language is written in, and whether a text is in it.

Catalogues hold untranslated and mistranslated entries: English under Greek, Russian under Turkish.
Foreign names are normal in every language, so a text is wrong only where its own script is nearly absent.
"""

from __future__ import annotations

import regex

_LATIN, _CYRILLIC = r"\p{Latin}", r"\p{Cyrillic}"
# By ISO 15924 code, for languages that name their script.
_BY_CODE = {
    "Latn": _LATIN,
    "Cyrl": _CYRILLIC,
    "Grek": r"\p{Greek}",
    "Arab": r"\p{Arabic}",
    "Deva": r"\p{Devanagari}",
    "Hans": r"\p{Han}",
    "Hant": r"\p{Han}",
    "Jpan": r"\p{Han}\p{Hiragana}\p{Katakana}",
    "Kore": r"\p{Hangul}\p{Han}",
    "Hebr": r"\p{Hebrew}",
    "Thai": r"\p{Thai}",
    "Beng": r"\p{Bengali}",
    "Taml": r"\p{Tamil}",
    "Telu": r"\p{Telugu}",
    "Geor": r"\p{Georgian}",
    "Armn": r"\p{Armenian}",
}
_BY_LANGUAGE = {
    **dict.fromkeys(["ru", "uk", "bg", "be", "mk", "kk", "ky", "mn", "tg"], "Cyrl"),
    **dict.fromkeys(["ar", "fa", "ur", "ps"], "Arab"),
    **dict.fromkeys(["hi", "mr", "ne"], "Deva"),
    **{"el": "Grek", "zh": "Hans", "ja": "Jpan", "ko": "Kore", "he": "Hebr", "th": "Thai", "bn": "Beng", "ta": "Taml"},
    **{"te": "Telu", "ka": "Geor", "hy": "Armn"},
    **dict.fromkeys(["en", "fr", "de", "es", "it", "pt", "nl", "sv", "da", "nb", "nn", "no", "fi", "et", "lv", "lt", "pl", "cs"], "Latn"),
    **dict.fromkeys(["sk", "sl", "hr", "ro", "hu", "tr", "vi", "id", "ms", "sw", "ca", "eu", "gl", "cy", "ga", "is", "sq"], "Latn"),
}
# A language in another script than Latin uses Latin names freely; one in Latin has little of any other.
MIN_SHARE_OF_LATIN_LANGUAGES = 0.5
MIN_SHARE_OF_OTHERS = 0.15

_LETTERS = regex.compile(r"\p{L}+")
_patterns: dict[str, regex.Pattern[str] | None] = {}


def script_code(language: str) -> str | None:
    """Return the ISO 15924 code of a BCP-47 language: its own subtag, else the usual script, None where unknown."""
    parts = language.split("-")
    named = [part for part in parts[1:] if len(part) == 4]
    return named[0] if named else _BY_LANGUAGE.get(parts[0])


def script_share(text: str, language: str) -> float:
    """Return the share of a text's letters that are in the language's script; 1 without letters or a known script."""
    pattern = _pattern(language)
    letters = sum(map(len, _LETTERS.findall(text)))
    if pattern is None or letters == 0:
        return 1.0
    return sum(map(len, pattern.findall(text))) / letters


def wrong_script(text: str, language: str) -> bool:
    """Return whether a text is not in its language's script."""
    code = script_code(language)
    if code is None or (code == "Latn" and text.isascii()):
        return False
    least = MIN_SHARE_OF_LATIN_LANGUAGES if code == "Latn" else MIN_SHARE_OF_OTHERS
    return script_share(text, language) < least


def _pattern(language: str) -> regex.Pattern[str] | None:
    if language not in _patterns:
        ranges = _BY_CODE.get(script_code(language) or "")
        # Long vowel and iteration marks are letters of no single script (ー, 々), so they count as the language's own.
        _patterns[language] = regex.compile(rf"[{ranges}\p{{Lm}}]+") if ranges else None
    return _patterns[language]
