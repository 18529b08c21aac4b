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


class SentenceSampler:
    """Draw raw sentences of one language; ``fillers`` give the text of its open slots."""

    def __init__(self, grammar: Grammar, fillers: Mapping[str, Sequence[str]]) -> None:
        self._expressions = import_hassil().expression
        self._lists = import_hassil().intents
        self._grammar = grammar
        self._fillers = fillers
        self._numbers: dict[str, tuple[float, ...]] = {}
        self._words: dict[float, tuple[str, ...]] = {}

    def draw(self, template: Template, generator: np.random.Generator) -> str:
        """Return one sentence, white space as it fell.

        Raises UnfilledTemplateError for a rule or slot that is not there.
        """
        return self._walk(template.expression, generator, 0)

    def draw_distinct(self, template: Template, count: int, generator: np.random.Generator) -> list[str]:
        """Return up to ``count`` different sentences; fewer where the template hardly varies."""
        found: dict[str, None] = {}
        for _ in range(count * DRAWS_PER_SENTENCE):
            found.setdefault(self.draw(template, generator))
            if len(found) == count:
                break
        return list(found)

    def _walk(self, node: Expression, generator: np.random.Generator, depth: int) -> str:
        kinds = self._expressions
        if depth > MAX_DEPTH:
            raise UnfilledTemplateError("rules in a circle")
        if isinstance(node, kinds.TextChunk):
            return str(node.original_text)
        if isinstance(node, kinds.Alternative):
            return self._walk(_choose(node.items, generator), generator, depth + 1)
        if isinstance(node, kinds.Permutation):
            order = generator.permutation(len(node.items))
            return "".join(self._walk(node.items[index], generator, depth + 1) for index in order)
        if isinstance(node, kinds.Group):
            return "".join(self._walk(item, generator, depth + 1) for item in node.items)
        if isinstance(node, kinds.RuleReference):
            if node.rule_name not in self._grammar.rules:
                raise UnfilledTemplateError(f"no rule <{node.rule_name}>")
            return self._walk(self._grammar.rules[node.rule_name], generator, depth + 1)
        if isinstance(node, kinds.ListReference):
            return self._slot(node, generator, depth)
        raise UnfilledTemplateError(f"unknown syntax {type(node).__name__}")

    def _slot(self, node: ListReference, generator: np.random.Generator, depth: int) -> str:
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
        if isinstance(values, self._lists.TextSlotList) and values.values:
            return self._walk(_choose(values.values, generator).text_in, generator, depth + 1)
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
