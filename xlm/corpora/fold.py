"""The identity of a text: what is left when case, digits, punctuation and white space do not count.

Deduplication, pair keys and the held-out hashes all use this one folding, so that two texts which a
case-folding vocabulary could hardly tell apart are never on both sides of a train/test boundary.
"""

from __future__ import annotations

import functools
import re
import unicodedata

from xlm.seeding import key_digest

_DIGITS = re.compile("0{2,}")
KEY_BYTES = 8


class _FoldTable(dict[int, str | None]):
    """A `str.translate` table that classifies each code point when it is first met.

    Letters and marks stay (marks carry the vowels of Devanagari and Arabic), every decimal digit is 0,
    format characters (joiners, soft hyphens) vanish inside words, and all else separates words.
    """

    def __missing__(self, code_point: int) -> str | None:
        character = chr(code_point)
        category = unicodedata.category(character)
        if category[0] in "LM":
            folded: str | None = character
        elif category[0] == "N":
            folded = "0"
        elif category == "Cf":
            folded = None
        else:
            folded = " "
        self[code_point] = folded
        return folded


_TABLE = _FoldTable()


# The English side of a catalogue comes back with every language, in the same order.
@functools.lru_cache(maxsize=1 << 16)
def fold(text: str) -> str:
    """Return ``text`` compatibility-composed (NFKC), case-folded, with runs of digits as one 0 and words one space apart."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    text = text.casefold()
    if not text.isascii():
        # Case folding can undo composition (İ becomes i and a mark).
        text = unicodedata.normalize("NFKC", text)
    words = " ".join(text.translate(_TABLE).split())
    return _DIGITS.sub("0", words) if "00" in words else words


def folded_key(folded: str) -> str:
    """Return the 16 hexadecimal digits that stand for an already folded text."""
    return key_digest("fold", folded, size_bytes=KEY_BYTES).hex()


def pair_key(english: str) -> str:
    """Return the key of a pair: equal for every translation of one English text, in whatever package it stands."""
    return folded_key(fold(english))
