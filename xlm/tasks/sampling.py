"""Random sentences from one template, without ever listing all of them.

A template with a few options, a rule or two and a number range stands for millions of sentences.
`hassil.sample` enumerates them; here its parsed expression is walked once per draw, choosing among
the alternatives at each node, so a draw costs what the sentence is long. The choice is uniform at each
node, not over sentences: a range of 100 numbers does not crowd out an alternative without one.

Numbers are spelled out (CLDR's rules, as in hassil): digits are the same in every language, and most intents
with a number are about timers, so that digits would let a classifier score without reading a word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from xlm.tasks.grammar import Grammar, Template, import_hassil

if TYPE_CHECKING:
    from hassil.expression import Expression, ListReference

Item = TypeVar("Item")

# Rules refer to rules; the package nests four deep. Beyond this they refer to each other in a circle.
MAX_DEPTH = 64
DRAWS_PER_SENTENCE = 8


# Of CLDR's spellings: not days of the month, the forms of Chinese and Japanese cheques, or cases beside the nominative.
_CARDINAL = re.compile(r"spellout-cardinal(?!.*(?:financial|genitive|dative|accusative|locative|ablative|prepositional|-[nrsm]$)).*")


class UnfilledTemplateError(Exception):
    """A template refers to a rule or a slot for which there is no text; the message names it."""


@dataclass(frozen=True, slots=True)
class Slot:
    """What fills a slot of a sentence: its characters ``text[start:end]`` and the name of the slot."""

    start: int
    end: int
    name: str


@dataclass(frozen=True, slots=True)
class SlottedText:
    """A sentence and its slots in order; they do not overlap (of a slot inside a slot's value only the outer one counts)."""

    text: str
    slots: tuple[Slot, ...] = ()


@dataclass
class _Written:
    """A sentence as it is written piece by piece."""

    pieces: list[str] = field(default_factory=list)
    length: int = 0
    slots: list[Slot] = field(default_factory=list)

    def add(self, text: str) -> None:
        self.pieces.append(text)
        self.length += len(text)


class SentenceSampler:
    """Draw raw sentences of one language; ``fillers`` give the text of its open slots."""

    def __init__(self, grammar: Grammar, fillers: Mapping[str, Sequence[str]]) -> None:
        self._expressions = import_hassil().expression
        self._lists = import_hassil().intents
        self._grammar = grammar
        self._fillers = fillers
        self._numbers: dict[str, tuple[float, ...]] = {}
        self._words: dict[float, tuple[str, ...]] = {}

    @property
    def language(self) -> str:
        """Return the language of the sentences."""
        return self._grammar.language

    def draw(self, template: Template, generator: np.random.Generator) -> SlottedText:
        """Return one sentence, white space as it fell.

        Raises UnfilledTemplateError for a rule or slot that is not there.
        """
        written = _Written()
        self._walk(template.expression, generator, 0, written)
        return SlottedText("".join(written.pieces), tuple(written.slots))

    def draw_distinct(self, template: Template, count: int, generator: np.random.Generator) -> list[SlottedText]:
        """Return up to ``count`` different sentences; fewer where the template hardly varies."""
        found: dict[str, SlottedText] = {}
        for _ in range(count * DRAWS_PER_SENTENCE):
            drawn = self.draw(template, generator)
            found.setdefault(drawn.text, drawn)
            if len(found) == count:
                break
        return list(found.values())

    def _walk(self, node: Expression, generator: np.random.Generator, depth: int, written: _Written) -> None:
        kinds = self._expressions
        if depth > MAX_DEPTH:
            raise UnfilledTemplateError("rules in a circle")
        if isinstance(node, kinds.TextChunk):
            written.add(str(node.original_text))
        elif isinstance(node, kinds.Alternative):
            self._walk(_choose(node.items, generator), generator, depth + 1, written)
        elif isinstance(node, kinds.Permutation):
            for index in generator.permutation(len(node.items)):
                self._walk(node.items[index], generator, depth + 1, written)
        elif isinstance(node, kinds.Group):
            for item in node.items:
                self._walk(item, generator, depth + 1, written)
        elif isinstance(node, kinds.RuleReference):
            if node.rule_name not in self._grammar.rules:
                raise UnfilledTemplateError(f"no rule <{node.rule_name}>")
            self._walk(self._grammar.rules[node.rule_name], generator, depth + 1, written)
        elif isinstance(node, kinds.ListReference):
            start, inside = written.length, len(written.slots)
            self._fill(node, generator, depth, written)
            if not node.is_capture:  # which an answer refers to, not the intent
                written.slots[inside:] = [Slot(start, written.length, str(node.slot_name))]
        else:
            raise UnfilledTemplateError(f"unknown syntax {type(node).__name__}")

    def _fill(self, node: ListReference, generator: np.random.Generator, depth: int, written: _Written) -> None:
        values = self._grammar.lists.get(str(node.list_name))
        if node.get_inline_range() is None and isinstance(values, self._lists.TextSlotList) and values.values:
            self._walk(_choose(values.values, generator).text_in, generator, depth + 1, written)
        else:
            written.add(self._value(node, generator))

    def _value(self, node: ListReference, generator: np.random.Generator) -> str:
        """Return a number of the slot's range, or one of the fillers."""
        name = str(node.list_name)
        inline = node.get_inline_range()
        if inline is not None:
            start, stop, step = inline
            return _choose(self._spelled(_choose(range(start, stop + 1, step), generator)), generator)
        values = self._grammar.lists.get(name)
        if isinstance(values, self._lists.RangeSlotList):
            numbers = self._numbers.setdefault(name, tuple(values.get_numbers()))
            number = _choose(numbers, generator)
            return _choose(self._spelled(number), generator) if values.words else _digits(number)
        fillers = self._fillers.get(name)
        if not fillers:
            raise UnfilledTemplateError(f"no text for the slot {{{name}}}")
        return _choose(fillers, generator)

    def _spelled(self, number: float) -> tuple[str, ...]:
        """Return the number in words, in every gender the language has, or in digits where no words are known."""
        if number not in self._words:
            try:
                rules = import_hassil().numbers.get_rbnf_engine(self._grammar.language.split("-")[0])
                found = {text for name, text in rules.format_number(number).text_by_ruleset.items() if _CARDINAL.fullmatch(name)}
            except ValueError:
                found = set()
            # Soft hyphens only say where a long German number may be broken.
            self._words[number] = tuple(sorted(text.replace("\u00ad", "") for text in found)) or (_digits(number),)
        return self._words[number]


def _choose(items: Sequence[Item], generator: np.random.Generator) -> Item:
    return items[int(generator.integers(len(items)))]


def _digits(value: float) -> str:
    return f"{value:g}" if value < 1e6 else str(value)
