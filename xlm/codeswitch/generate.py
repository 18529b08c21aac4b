"""Dictionary code-switching: words replaced by their translations, a new draw each epoch.

After CoSDA-ML (Qin et al. 2020): each word is switched with a given rate, into a language and to a
translation drawn uniformly, and stays where the dictionary has none. Here a word is the longest
dictionary entry of up to three words, nothing is lower-cased, translations are put in as the dictionary
has them (their inflection is not adapted), and what could not be switched is counted. The result is a
function of (seed, epoch, row key) and the text: no state, no order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar, cast

import regex

from xlm.codeswitch.lexicon import Lexicon
from xlm.codeswitch.measures import Tag, cmi
from xlm.codeswitch.tokens import UNSPACED, tokenise
from xlm.errors import UserError
from xlm.seeding import keyed_generator

# What may stand at the edge of a word of a script with spaces, hyphens and apostrophes included.
_SPACED_EDGE = regex.compile(rf"(?![{UNSPACED}])[\p{{L}}\p{{M}}\p{{N}}'’\-]")


@dataclass(frozen=True, slots=True)
class SwitchedText:
    """A switched text and the language of each of its tokens (segmentation of `xlm.codeswitch.tokens`).

    ``words`` are tokens of the original, ``covered`` those that an entry covers, ``switched`` those replaced.
    """

    text: str
    tags: tuple[Tag, ...]
    words: int
    covered: int
    switched: int

    @property
    def realised_share(self) -> float:
        """Switched words among all words of the original; below the rate wherever the dictionary has gaps."""
        return self.switched / self.words if self.words else 0.0

    @property
    def cmi(self) -> float:
        """Code-mixing index of the tags, 0 to 100."""
        return cmi(self.tags)


def switch_text(
    text: str, language: str, lexicons: Mapping[str, Lexicon], rate: float, *, seed: int, epoch: int, key: str, lower: bool = False
) -> SwitchedText:
    """Switch the words of ``text`` (in ``language``) with probability ``rate`` into the languages of ``lexicons``.

    With ``lower`` translations are put in in lower case, for text that is lower case itself. Raises
    UserError for a rate outside [0, 1] or without a lexicon.
    """
    if not 0.0 <= rate <= 1.0:
        raise UserError(f"a code-switching rate is a probability from 0 to 1; found {rate}.")
    if not lexicons:
        raise UserError("code-switching needs a lexicon of at least one language.")
    languages = sorted(lexicons)
    tokens = tokenise(text)
    # Three draws a token, used or not: what the lexicon has for one word leaves the draws of the others alone.
    draws = keyed_generator(seed, "code-switching", epoch, key).random((len(tokens), 3))
    pieces: list[str] = []
    tags: list[Tag] = []
    copied = position = covered = switched = 0
    while position < len(tokens):
        into, decision, choice = draws[position]
        target = languages[int(into * len(languages))]
        length, translations = lexicons[target].longest_match(text, tokens, position)
        covered += length
        step = max(1, length)
        if length and decision < rate:
            translation = translations[int(choice * len(translations))]
            translation = translation.lower() if lower else translation
            start, end = tokens[position].start, tokens[position + length - 1].end
            if tokens[position].unspaced:
                translation = _set_apart(text, start, end, translation, pieces[-1] if pieces and start == copied else "")
            pieces += [text[copied:start], translation]
            copied = end
            tags += [target] * len(tokenise(translation))
            switched += length
        else:
            tags += [language] * step
        position += step
    pieces.append(text[copied:])
    return SwitchedText("".join(pieces), tuple(tags), len(tokens), covered, switched)


class Sentence(Protocol):
    """What can be switched: a frozen dataclass with an id and a text (an intent sentence, say)."""

    @property
    def id(self) -> str:
        """Key of the draw."""

    @property
    def text(self) -> str:
        """Text to switch."""


SentenceT = TypeVar("SentenceT", bound=Sentence)


@dataclass(frozen=True)
class SwitchedSentences(Generic[SentenceT]):
    """Sentences with their text switched, all else as it was; ``draws[i]`` says how ``sentences[i]`` came out."""

    sentences: tuple[SentenceT, ...]
    draws: tuple[SwitchedText, ...]

    @property
    def unswitched(self) -> int:
        """Sentences in which nothing was switched, by chance or because the lexicon covers none of their words."""
        return sum(draw.switched == 0 for draw in self.draws)

    @property
    def uncovered(self) -> int:
        """Sentences in which nothing could be switched: the lexicon covers none of their words."""
        return sum(draw.covered == 0 for draw in self.draws)

    @property
    def realised_share(self) -> float:
        """Switched words among all words."""
        return sum(draw.switched for draw in self.draws) / max(1, sum(draw.words for draw in self.draws))

    @property
    def coverage(self) -> float:
        """Words that an entry covers, among all words."""
        return sum(draw.covered for draw in self.draws) / max(1, sum(draw.words for draw in self.draws))

    @property
    def mean_cmi(self) -> float:
        """Mean code-mixing index of the sentences, 0 to 100."""
        return sum(draw.cmi for draw in self.draws) / max(1, len(self.draws))


def code_switched_intents(
    sentences: Sequence[SentenceT], lexicon: Lexicon, language: str, rate: float, seed: int
) -> SwitchedSentences[SentenceT]:
    """Switch words of English sentences into ``language``; the lexicon's language must be that one.

    Intent sentences are lower case, so translations are put in in lower case. Raises UserError for a
    lexicon of another language.
    """
    if lexicon.language != language:
        raise UserError(f"this lexicon translates into '{lexicon.language}', not into '{language}'; build it from the right pair corpus.")
    lexicons = {language: lexicon}
    draws = tuple(
        switch_text(sentence.text, lexicon.source_language, lexicons, rate, seed=seed, epoch=0, key=sentence.id, lower=True)
        for sentence in sentences
    )
    switched = tuple(cast(SentenceT, replace(cast(Any, sentence), text=draw.text)) for sentence, draw in zip(sentences, draws, strict=True))
    return SwitchedSentences(switched, draws)


def _set_apart(text: str, start: int, end: int, translation: str, written: str) -> str:
    """Put spaces around a translation that would run into its neighbours, in text without spaces between words."""
    before = written[-1:] or text[start - 1 : start]
    after = text[end : end + 1]
    left = " " if _runs_together(before, translation[:1]) else ""
    right = " " if _runs_together(translation[-1:], after) else ""
    return left + translation + right


def _runs_together(left: str, right: str) -> bool:
    return bool(_SPACED_EDGE.fullmatch(left) and _SPACED_EDGE.fullmatch(right))
