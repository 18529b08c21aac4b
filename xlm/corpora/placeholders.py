"""Placeholders: the holes that a program fills before anybody reads the text.

A hole inside a sentence becomes an ellipsis, the mark of omission in every language of the world's
typography: it keeps the grammar around it ("Copied … files to …") and, unlike an invented word or an
identifier such as ``entity_name``, says nothing in any one language. Holes at the edges are dropped.
"""

from __future__ import annotations

import re

HOLE = "…"

_PERCENT_NAMED = re.compile(r"%\([^()\s]+\)[#0\- +]*\d*(?:\.\d+)?[A-Za-z]?")
_PRINTF = re.compile(
    r"(?<![\d%])%(?:\d+\$)?[#0+-]*\d*(?:\.\d+)?(?:hh|h|ll|l|z)?[diouxXeEfFgGcrsS](?![^\W\d_]{2})|(?<![\d%])%(?:n|\d+)(?!\w)"
)
_DOLLAR = re.compile(r"\$\{[^{}]*\}|\$[A-Za-z_]\w*")
_BRACES = re.compile(r"\{\{[^{}]*\}\}|\{[^{}\n]*\}")
_ICU = re.compile(r"\{\s*[\w-]+\s*,\s*(?:plural|select|selectordinal)\s*,")
_ICU_FORM = re.compile(r"\s*(=\d+|[\w-]+)\s*\{")

_OPEN, _CLOSE = "'\"‘’“”„‚«»‹›「『《〈", "'\"‘’“”«»‹›」』》〉"
_QUOTED_HOLE = re.compile(rf"[{_OPEN}]\s*{HOLE}\s*[{_CLOSE}]")
_BRACKETED_HOLES = re.compile(rf"\s*[(\[（【]\s*{HOLE}[{HOLE}\s,.:;/–-]*[)\]）】]")
_RUN_OF_HOLES = re.compile(rf"{HOLE}(?:[\s,:;./–—_×x-]*{HOLE})+")
_EDGE_START = re.compile(rf"^(?:[\s,:;.)\]}}–—、，：-]*{HOLE})+[\s,:;.)\]}}–—、，：-]*")
_EDGE_END = re.compile(rf"[\s,;(\[–—、，-]*{HOLE}[\s{HOLE}]*([.!?:。！？：।]?)$")
_DOTS = re.compile(r"\.{3,}|……+")


class BrokenPluralError(ValueError):
    """An ICU message whose braces do not close."""


def without_placeholders(text: str) -> str:
    """Return ``text`` with its placeholders as `HOLE`; raises BrokenPluralError for an ICU message that does not close."""
    if "%" in text:  # before the dollars, for %1$s has one
        text = _PERCENT_NAMED.sub(HOLE, text)
        text = _PRINTF.sub(HOLE, text)
        text = text.replace("%%", "%")
    if "{" in text and _ICU.search(text):
        text = _resolve_plurals(text)
    if "$" in text:
        text = _DOLLAR.sub(HOLE, text)
    return _BRACES.sub(HOLE, text) if "{" in text else text


def tidy_holes(text: str) -> str:
    """Drop holes (and the ellipsis of menu entries) at the edges, in quotes and in brackets; join runs of them."""
    text = _DOTS.sub(HOLE, text)
    if HOLE not in text:
        return text
    text = _QUOTED_HOLE.sub(HOLE, text)
    text = _BRACKETED_HOLES.sub("", text)
    text = _RUN_OF_HOLES.sub(HOLE, text)
    text = _EDGE_START.sub("", text)
    return _EDGE_END.sub(r"\1", text)


def _resolve_plurals(text: str, depth: int = 0) -> str:
    """Replace each ICU plural or select by its ``other`` form (the last one, where there is none)."""
    found = _ICU.search(text)
    if found is None or depth > 20:
        return text
    position = found.end()
    forms: dict[str, str] = {}
    while form := _ICU_FORM.match(text, position):
        end = _closing_brace(text, form.end())
        forms[form[1]] = text[form.end() : end]
        position = end + 1
    rest = text[position:]
    if not forms or not rest.lstrip().startswith("}"):
        raise BrokenPluralError(text)
    chosen = forms.get("other", list(forms.values())[-1]).replace("#", HOLE)
    return _resolve_plurals(text[: found.start()] + chosen + rest.lstrip()[1:], depth + 1)


def _closing_brace(text: str, position: int) -> int:
    depth = 1
    while position < len(text):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position
        position += 1
    raise BrokenPluralError(text)
