"""A dictionary out of aligned catalogues: entries of one to three words, and what they are called elsewhere.

Interface strings are a dictionary in all but name ("Kitchen" – "Küche", "Turn off" – "Ausschalten").
Entries come from the cleaned corpus, from which the evaluation text has been taken out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import regex

from xlm.codeswitch.tokens import Token, tokenise
from xlm.corpora.documents import SentencePair
from xlm.corpora.fold import fold
from xlm.errors import UserError
from xlm.seeding import key_int64

MOST_WORDS = 3
# A word of Chinese or Thai is several tokens long (see tokens.py).
MOST_UNSPACED_TOKENS = 8
# A translation may be longer than the entry ("mute" – "désactiver le son"), but not a sentence.
MOST_TRANSLATION_WORDS = 5
MOST_TRANSLATION_UNSPACED_TOKENS = 12
MOST_TRANSLATIONS = 4

_WORDS_ONLY = regex.compile(r"[\p{L}\p{M}]+(?:[ '’\-][\p{L}\p{M}]+)*", regex.VERSION1)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a text the lexicon could switch; ``words`` are tokens of the text."""

    words: int
    covered: int

    @property
    def share(self) -> float:
        """Covered words among all words, 0 where there are none."""
        return self.covered / self.words if self.words else 0.0


@dataclass(frozen=True)
class Lexicon:
    """Translations into one ``language`` by folded source entry, the most frequent translation first."""

    source_language: str
    language: str
    entries: Mapping[str, tuple[str, ...]] = field(repr=False)

    @classmethod
    def from_pairs(cls, pairs: Iterable[SentencePair]) -> Lexicon:
        """Collect the entries among the pairs of one pair corpus; depends on the pairs alone, not on their order.

        Kept are sources of 1 to 3 words (8 characters in scripts without spaces) and translations of up
        to 5 (12), letters only on both sides, not the same folded text. Raises UserError for pairs of
        several pair corpora.
        """
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        languages: set[tuple[str, str]] = set()
        for pair in pairs:
            languages.add((pair.source_language, pair.target_language))
            if not _is_entry(pair.source, MOST_WORDS, MOST_UNSPACED_TOKENS):
                continue
            if not _is_entry(pair.target, MOST_TRANSLATION_WORDS, MOST_TRANSLATION_UNSPACED_TOKENS):
                continue
            folded = fold(pair.source)
            if fold(pair.target) != folded:
                counts[folded][pair.target] += 1
        if len(languages) != 1:
            found = ", ".join(sorted("-".join(names) for names in languages)) or "no pairs at all"
            raise UserError(f"a lexicon is made from the pairs of one source and one target language; found {found}.")
        ((source, target),) = languages
        return cls(source, target, {entry: _ranked(found) for entry, found in sorted(counts.items())})

    def halves(self, seed: int) -> tuple[Lexicon, Lexicon]:
        """Split the entries in two, so that no word of the source language and no translation is in both halves.

        Each word falls to a half by a key of (seed, word), the same in every language. An entry of several words that fall to
        different halves ("turn" to one, "off" to the other) is in neither, and the first half goes without translations that
        the second has too ("delete" and "remove" may both be "löschen"): the lengths tell how many entries that costs.
        """
        halves: tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]] = ({}, {})
        for entry, translations in self.entries.items():
            words = {entry[token.start : token.end] for token in tokenise(entry)}
            fallen = {key_int64(seed, "lexicon half", word) % 2 for word in words}
            if len(fallen) == 1:
                halves[fallen.pop()][entry] = translations
        first, second = halves
        taken = {fold(translation) for translations in second.values() for translation in translations}
        apart = {entry: tuple(one for one in translations if fold(one) not in taken) for entry, translations in first.items()}
        return (
            Lexicon(self.source_language, self.language, {entry: translations for entry, translations in apart.items() if translations}),
            Lexicon(self.source_language, self.language, second),
        )

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self.entries)

    def longest_match(self, text: str, tokens: Sequence[Token], position: int) -> tuple[int, tuple[str, ...]]:
        """Return how many tokens from ``position`` on the longest entry covers, and its translations; (0, ()) for none.

        Words of an entry are next to each other in the text with nothing but spaces between them.
        """
        longest = MOST_UNSPACED_TOKENS if tokens[position].unspaced else MOST_WORDS
        for length in range(min(longest, len(tokens) - position), 0, -1):
            start, end = tokens[position].start, tokens[position + length - 1].end
            if length > 1 and not _WORDS_ONLY.fullmatch(text, start, end):
                continue
            translations = self.entries.get(fold(text[start:end]))
            if translations:
                return length, translations
        return 0, ()

    def coverage(self, texts: Iterable[str]) -> Coverage:
        """Count the words of ``texts`` that longest matches cover."""
        words = covered = 0
        for text in texts:
            tokens = tokenise(text)
            words += len(tokens)
            position = 0
            while position < len(tokens):
                length, _ = self.longest_match(text, tokens, position)
                covered += length
                position += max(1, length)
        return Coverage(words, covered)


def _is_entry(text: str, most_words: int, most_unspaced: int) -> bool:
    if not _WORDS_ONLY.fullmatch(text):
        return False
    tokens = tokenise(text)
    unspaced = sum(token.unspaced for token in tokens)
    return len(tokens) > 0 and len(tokens) - unspaced <= most_words and unspaced <= most_unspaced


def _ranked(counts: Counter[str]) -> tuple[str, ...]:
    """Return one spelling a folded translation, the most frequent translations first, ties by code point."""
    spellings: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for text, count in counts.items():
        spellings[fold(text)].append((-count, text))
    totals = {folded: sum(count for count, _ in found) for folded, found in spellings.items()}
    ranked = sorted(spellings, key=lambda folded: (totals[folded], folded))
    return tuple(min(spellings[folded])[1] for folded in ranked[:MOST_TRANSLATIONS])
