"""Where words begin in a row, for masking whole words and spans of them.

The rule: a word begins at a piece that SentencePiece wrote with white space before it (``▁``) and goes on to the
next such piece or special piece; a piece after a special piece begins a word whatever it looks like. In languages
that are written without spaces between words every piece is a word of its own: their pieces are learned from
running text and are about as long as words, while "until the next space" would be a clause or a sentence. (Their
foreign words, and characters that are spelled in bytes, come apart with them.)

Languages without spaces go by their script: those that Unicode's line breaking (UAX #14) treats as ideographic or as
complex-context South-East Asian, and Tibetan, Javanese and Balinese. Korean, Vietnamese and Pinyin have spaces; so has
most text in Hokkien, Hakka and Eastern Min, which is Latin: where it is Han, the language's tag says so (``nan-Hant``).
"""

from __future__ import annotations

from xlm.batching.masking_rows import Flags
from xlm.batching.packed_rows import Ids

# ISO 15924.
_SCRIPTS = "Hani Hans Hant Jpan Hira Kana Hrkt Yiii Nshu Tang Thai Laoo Khmr Mymr Tale Talu Lana Tavt Ahom Tibt Java Bali"
# Languages usually written in one of these, for tags that name no script.
_LANGUAGES = (
    "zh cmn cjy cnp cpx csp czh czo gan hsn lzh mnp wuu yue",  # Chinese
    "ja ams kzg mvi okn ryu rys xug yoi yox ii",  # Japanese, Ryukyuan, Yi
    "th kxm nod sou tts lo km khb kht my mnw rki shn tdd",  # Thai, Lao, Khmer, Burmese and Tai scripts
    "bo adx dz khg",  # Tibetan
)
SCRIPTS_WITHOUT_SPACES = frozenset(_SCRIPTS.split())
LANGUAGES_WITHOUT_SPACES = frozenset(" ".join(_LANGUAGES).split())


def has_spaces(language: str) -> bool:
    """Return whether words of a language (BCP-47) are written with spaces between them; a script decides if one is named."""
    name, *subtags = language.split("-")
    for subtag in subtags:
        if len(subtag) == 4:
            return subtag not in SCRIPTS_WITHOUT_SPACES
    return name not in LANGUAGES_WITHOUT_SPACES


def word_starts(ids: Ids, row_starts: Ids, text: Flags, is_word_start: Flags, spaced: Flags | None) -> Flags:
    """Return where words begin in rows that start at ``row_starts`` [R], [T].

    ``text`` [T] is False for special pieces, ``is_word_start`` [vocabulary] True for pieces with white space before
    them, ``spaced`` [T] False where every piece is a word; None means True everywhere.
    """
    starts = is_word_start[ids]
    if spaced is not None:
        starts |= ~spaced
    starts[1:] |= ~text[:-1]
    starts[row_starts[row_starts < ids.size]] = True  # an empty last row starts behind the end
    starts &= text
    return starts
