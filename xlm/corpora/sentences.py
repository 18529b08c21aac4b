"""Where sentences start in running text: a rule of punctuation, good for prose in the scripts we read.

A full stop, question or exclamation mark (of any of these scripts), then closing quotes, then white
space and something a sentence can start with. Single letters and a few common abbreviations do not
end one. Chinese and Japanese marks need no space after them. The rule splits too little rather than
too much: a sentence start is where a document may be cut, so a missed one costs nothing.
"""

from __future__ import annotations

import regex

_END = regex.compile(
    r"""(?:[.!?؟۔।॥]+["'”’»)\]]*\s+ | [。！？]+["'”’」』）]*\s*)
        (?=[\p{Lu}\p{Lt}\p{Lo}\p{N}"'“‘«„¿¡(「『])""",
    regex.VERBOSE,
)
_ABBREVIATION = regex.compile(
    r"(?:^|[\s(])(?:\p{L}|\p{L}\.\p{L}|Dr|Mr|Mrs|Ms|Prof|St|Sr|Jr|Mt|No|vs|etc|ca|cf|Inc|Ltd|Co|Gen|Col|Sgt|Lt|Rev|Hon|Fig|Vol|approx|"
    r"bzw|Nr|usw|Abs|Bd|Mme|Mlle|env|av|apr|art|Sra|Srta|Dra|Ud|Uds|núm|pág|д|г|гг|т|им)$"
)
_LOOKBACK = 12


def sentence_starts(text: str) -> tuple[int, ...]:
    """Return the character offsets at which sentences start, the first always 0; empty for an empty text."""
    if not text:
        return ()
    starts = [0]
    for found in _END.finditer(text):
        before = text[max(0, found.start() - _LOOKBACK) : found.start()]
        ends_plainly = text[found.start()] != "." or not _ABBREVIATION.search(before)
        if ends_plainly and found.end() < len(text):
            starts.append(found.end())
    return tuple(starts)
