r"""SentencePiece's normaliser in the parts that the `tokenizers` library has.

`Precompiled`, the part made for this, looks up whole graphemes under six bytes and else single characters, and takes
the shortest rule that fits; SentencePiece takes the longest rule at each position. So ``A`` + COMBINING ACUTE loses its
accent when letters are folded, and the Arabic alef + madda of a word with vowel marks is left in two
(SOURCE: tokenizers/src/normalizers/precompiled.rs; sentencepiece/src/normalizer.cc, `NormalizePrefix`). Here a character
that continues a grapheme is first cut off by one of two separators, so that `Precompiled` sees single characters only:
`_JOINED` where SentencePiece has a rule for the characters before and after, `_APART` elsewhere. Then `_JOINED` is taken
out, NFC composes what a rule composes, and nothing else, because `_APART` is still there; then that is taken out, too.

The separators are unassigned control-like code points that no text has; a text that has them loses them.
"""

from __future__ import annotations

import unicodedata
from base64 import b64encode
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

import regex

from xlm.errors import UserError
from xlm.interop.character_map import read_rules
from xlm.vocab.parts import ModelParts
from xlm.vocab.vocabulary import WORD_START

Json = dict[str, Any]

_APART, _JOINED, _PREFIX = "\ufff0", "\ufff1", "\ufff2"  # the last one: the dummy prefix, which rules do not touch
_SHIELDS = "\ufff3\ufff4\ufff5\ufff6\ufff7\ufff8"
# Rules for scripts newer than the NFC of Python or of the `tokenizers` library are few; more than that is another normaliser.
_LARGEST_SHARE_UNREACHED = 0.01
# Of everything that can follow a letter in its grapheme, these are letters or format characters.
_NO_MARKS = "\u200c\u200d\u0e33\u0eb3\uff9e\uff9f"


def normaliser_of(parts: ModelParts, *, bracket: str) -> Json:
    """Return the `normalizer` of a tokenizer.json that does what the model's own normaliser does.

    ``bracket`` takes the place of ``<`` at the end, where no space is left. Raises UserError for a normaliser whose
    rules cannot be written so.
    """
    # First, so that a text of which nothing is left keeps its dummy prefix, as in SentencePiece. It goes before every text, because
    # the library fails on a mark that nothing precedes.
    steps: list[Json] = [{"type": "Prepend", "prepend": _PREFIX}]
    if parts.character_map:
        steps += _character_steps(parts.character_map, parts.normaliser)
    if parts.remove_extra_whitespaces:
        steps.append(_replace(rf"(?<=\A{_PREFIX}) +|[ {WORD_START}{_PREFIX}]+\z|(?<= ) +", ""))
    if not parts.add_dummy_prefix:
        steps.append(_replace_string(_PREFIX, ""))
    return {"type": "Sequence", "normalizers": [*steps, _replace(f"[ {_PREFIX}]", WORD_START), _replace_string("<", bracket)]}


def unreached_rules(rules: Mapping[str, str]) -> tuple[list[str], set[str]]:
    """Return the keys of several characters whose rule cannot be had by mapping each one and composing, and the shielded marks.

    A shielded mark must not be mapped before it is composed: folding makes a letter of iota subscript.
    """
    wrong = [key for key, value in rules.items() if len(key) > 1 and _composed(key, rules, ()) != value]
    spoilt = {mark for key in wrong for mark in key[1:] if mark in rules and _composed(key, rules, mark) == rules[key]}
    shielded = set(sorted(spoilt)[: len(_SHIELDS)])
    wrong += [key for key in rules if len(key) > 1 and not shielded.isdisjoint(key[1:])]
    return sorted({key for key in wrong if _composed(key, rules, shielded) != rules[key]}), shielded


@lru_cache(maxsize=2)  # reading a map takes seconds, and most vocabularies have the same
def _character_steps(character_map: bytes, normaliser: str) -> tuple[Json, ...]:
    """Return the steps for the character map: separate, map each character, compose."""
    rules = read_rules(character_map)
    joined = [key for key in rules if len(key) > 1]
    unreached, shielded = unreached_rules(rules)
    if len(unreached) > _LARGEST_SHARE_UNREACHED * len(joined):
        raise UserError(
            f"the normaliser '{normaliser}' of this vocabulary has {len(unreached):,} rules for several characters that are no "
            "composition, which a tokenizer.json cannot hold; build the vocabulary with the normaliser "
            "nfkc, nmt_nfkc or identity."
        )
    precompiled = {"type": "Precompiled", "precompiled_charsmap": b64encode(character_map).decode("ascii")}
    apart = _replace(rf"(?<!{_JOINED})(?=[{_ranges(_continuations(joined))}])|(?<=\r)(?=\n)", _APART)
    if not joined:
        return apart, precompiled, _replace_string(_APART, "")
    shields = dict(zip(sorted(shielded), _SHIELDS, strict=False))
    return (
        _replace(_between_joined(joined), _JOINED),
        apart,
        *(_replace_string(_JOINED + mark, _JOINED + shield) for mark, shield in shields.items()),
        precompiled,
        _replace_string(_JOINED, ""),
        *(_replace_string(shield, mark) for mark, shield in shields.items()),
        {"type": "NFC"},
        _replace_string(_APART, ""),
    )


def _composed(key: str, rules: Mapping[str, str], shielded: Collection[str]) -> str:
    mapped = rules.get(key[0], key[0]) + "".join(c if c in shielded else rules.get(c, c) for c in key[1:])
    return unicodedata.normalize("NFC", mapped)


def _continuations(joined: Iterable[str]) -> set[str]:
    """Return the characters that can go on with what is before them, in a rule, a grapheme or a composition."""
    continuing = {character for key in joined for character in key[1:]} | set(_NO_MARKS)
    for code in range(0x80, 0x110000):
        character = chr(code)
        if (
            unicodedata.category(character)[0] == "M"
            or unicodedata.combining(character)
            or (unicodedata.category(character) in {"Cf", "Sk"} and _one_grapheme("a" + character))
        ):
            continuing.add(character)
    return continuing


def _one_grapheme(text: str) -> bool:
    return regex.fullmatch(r"\X", text) is not None


def _between_joined(joined: Iterable[str]) -> str:
    """Return the pattern of every place inside a rule's key: what comes before, looked back at, and what comes after.

    Keys are products (a set of first characters, a middle, a set of last ones), so there are few alternatives.
    """
    firsts: dict[tuple[str, str], set[str]] = defaultdict(set)  # (middle, last) -> first characters
    for key in joined:
        firsts[key[1:-1], key[-1]].add(key[0])
    lasts: dict[tuple[frozenset[str], str], set[str]] = defaultdict(set)
    for (middle, last), first in firsts.items():
        lasts[frozenset(first), middle].add(last)
    middles: dict[tuple[frozenset[str], frozenset[str]], set[str]] = defaultdict(set)
    for (first_set, middle), ends in lasts.items():
        middles[first_set, frozenset(ends)].add(middle)
    behind: dict[frozenset[str], list[str]] = defaultdict(list)
    for (first_set, last_set), middle_set in middles.items():
        by_length: dict[int, list[str]] = defaultdict(list)
        for middle in middle_set:
            by_length[len(middle)].append(middle)
        for length, texts in sorted(by_length.items()):
            between = f"[{_ranges(texts)}]" if length == 1 else f"(?:{'|'.join(map(_escaped, sorted(texts)))})" if length else ""
            behind[last_set].append(f"(?<=[{_ranges(first_set)}]{between})")
    places = [f"(?=[{_ranges(last_set)}])(?:{'|'.join(sorted(options))})" for last_set, options in behind.items()]
    # Nearly every place in a text fails at the first look.
    return f"(?=[{_ranges({key[-1] for key in joined})}])(?:{'|'.join(sorted(places))})"


def _ranges(characters: Iterable[str]) -> str:
    r"""Return characters as the inside of a class, ``\x{61}-\x{7a}``, in code point order."""
    runs: list[list[int]] = []
    for code in sorted(map(ord, characters)):
        if runs and code == runs[-1][1] + 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return "".join(rf"\x{{{begin:x}}}" if begin == end else rf"\x{{{begin:x}}}-\x{{{end:x}}}" for begin, end in runs)


def _escaped(text: str) -> str:
    return "".join(rf"\x{{{ord(character):x}}}" for character in text)


def _replace(pattern: str, content: str) -> Json:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _replace_string(text: str, content: str) -> Json:
    return {"type": "Replace", "pattern": {"String": text}, "content": content}
