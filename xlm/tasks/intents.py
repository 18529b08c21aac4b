"""Intent classification drawn from sentence templates: train on English, test on templates never seen.

Sentences of one template differ in a word or a number, so a split by sentence would test memory, and so
would a split of templates that differ in the name of a slot. The split is by family of templates (`family`),
stratified by label. English has train, dev and test; every other language has dev
and test only, since the zero-shot protocol takes its labels from English alone. The label set is what the
package has in English; a sentence of another label cannot be predicted and is dropped and counted.

Each sentence has the slots of its template as tags on its words. What fills the open slots is another in training
than in dev and test (`fillers`), so that a tagger cannot know a room or a device by heart, in any language.

The text is what a speech recogniser would give: lower case, single spaces, no punctuation outside words
and numbers.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import regex

from xlm.config.recipe import IntentsSection
from xlm.seeding import key_digest, keyed_generator
from xlm.tasks.evaluation_sets import LabelledText, Split
from xlm.tasks.fillers import FillerHalves
from xlm.tasks.grammar import Grammar, Template
from xlm.tasks.sampling import SentenceSampler, Slot, SlottedText, UnfilledTemplateError
from xlm.tasks.slots import tag_words

# Spaces at the ends, after another space, and between Chinese or Japanese characters.
_UNSEEN_SPACE = regex.compile(r"^ +| +$|(?<=[\p{Han}\p{Hiragana}\p{Katakana}]) +(?=[\p{Han}\p{Hiragana}\p{Katakana}])|(?<= ) +")
# Kept: what joins letters and digits (l'heure, living-room, 50-minute, 20.5, 7:30, 1/2), a sign before a number,
# and % (° is a symbol to Unicode), which are said.
_PUNCTUATION = regex.compile(
    r"(?:(?<=[\p{L}\p{M}])['’](?=\p{L})|(?<=[\p{L}\p{M}\p{N}])-(?=[\p{L}\p{N}])|(?<=\d)[.,:/](?=\d)|(?<!\S)-(?=\d)|%)(*SKIP)(*FAIL)|\p{P}"
)
_TURKIC = {"tr", "az"}
# What does not make a template another one: which slot it fills, and words that may be left out.
_SLOT = regex.compile(r"\{[^{}]*\}")
_OPTION = regex.compile(r"\[[^\[\]]*\]")


@dataclass(frozen=True)
class IntentDraw:
    """A language's sentences, and what was left out, by reason."""

    language: str
    sentences: tuple[LabelledText, ...]
    dropped: Mapping[str, int]

    def class_counts(self) -> dict[str, int]:
        """Return sentences by label, all splits, most frequent first."""
        counts = Counter(sentence.label for sentence in self.sentences)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def split_counts(self) -> dict[str, int]:
        """Return sentences by split."""
        return dict(sorted(Counter(sentence.split for sentence in self.sentences).items()))


def draw_intents(
    grammar: Grammar, fillers: FillerHalves, labels: Sequence[str], section: IntentsSection, seed: int, *, source: bool
) -> IntentDraw:
    """Draw at most ``section.sentences_per_template`` sentences a template; ``source`` marks the language with a train split."""
    dropped: Counter[str] = Counter(grammar.dropped)
    known = set(labels)
    templates = [template for template in grammar.templates if template.label in known]
    if len(templates) < len(grammar.templates):
        dropped["label unknown in English (templates)"] = len(grammar.templates) - len(templates)
    samplers = {"test": SentenceSampler(grammar, fillers.test)}
    if source:
        samplers["train"] = SentenceSampler(grammar, fillers.train)
    sentences: dict[str, dict[str, list[SlottedText]]] = {}
    for template in templates:
        try:
            sentences[template.id] = {half: _cleaned(sampler, template, section, seed) for half, sampler in samplers.items()}
        except UnfilledTemplateError as error:
            dropped[f"template with {error}"] += 1
    # Only what can be said is split, so that a label's shares are of sentences that exist.
    said = [template for template in templates if any(sentence.text for sentence in sentences.get(template.id, {}).get("test", []))]
    splits = split_templates(said, section, seed, source=source)
    drawn = []
    for template in said:
        split = splits[template.id]
        for number, sentence in enumerate(sentences[template.id]["train" if split == "train" else "test"]):
            if sentence.text:
                tags = " ".join(tag_words(sentence.text, sentence.slots))
                drawn.append(LabelledText(f"{template.id}:{number}", sentence.text, template.label, family(template), split, tags))
            else:
                dropped["sentence empty"] += 1
    dropped = Counter({reason: count for reason, count in dropped.items() if count})
    return IntentDraw(grammar.language, tuple(_unambiguous(drawn, dropped)), dict(dropped))


def _cleaned(sampler: SentenceSampler, template: Template, section: IntentsSection, seed: int) -> list[SlottedText]:
    drawn = sampler.draw_distinct(template, section.sentences_per_template, keyed_generator(seed, "intents", template.id))
    return [clean_slotted(sentence, sampler.language) for sentence in drawn]


def family(template: Template) -> str:
    """Name the family of a template: those of one label that differ only in which slots they fill or in optional words.

    "decrease [the|my] {area} timer" and "decrease {timer_name:name} timer" are variations of each other. A
    family is in one split as a whole, and it is the unit that intervals resample.
    """
    pattern = _SLOT.sub("{}", template.text.lower())
    while (shorter := _OPTION.sub(" ", pattern)) != pattern:
        pattern = shorter
    return key_digest("template family", template.label, " ".join(pattern.split()), size_bytes=8).hex()


def split_templates(templates: Sequence[Template], section: IntentsSection, seed: int, *, source: bool) -> dict[str, Split]:
    """Assign every family of templates to one split, label by label, in a keyed order; returned by template.

    In the source language a label with two families or more has at least one in train and one in test,
    and one with a single family has it in train. In other languages what is not dev is test.
    """
    by_label: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for template in templates:
        by_label[template.label][family(template)].append(template.id)
    splits: dict[str, Split] = {}
    for families in by_label.values():
        order = sorted(families, key=lambda name: key_digest(seed, "template split", name))
        tests = min(max(1, _rounded(section.test_share * len(order))), len(order) - 1)
        most_dev = len(order) - tests - 1 if source else len(order) - 1
        devs = min(_rounded(section.dev_share * len(order)), most_dev)
        for position, name in enumerate(order):
            split: Split = "train"
            if position < devs:
                split = "dev"
            elif not source or position < devs + tests:
                split = "test"
            splits.update(dict.fromkeys(families[name], split))
    return splits


def clean_sentence(text: str, language: str) -> str:
    """Return a drawn sentence in lower case, without punctuation, with single spaces (none between Chinese or Japanese characters)."""
    return clean_slotted(SlottedText(text), language).text


def clean_slotted(drawn: SlottedText, language: str) -> SlottedText:
    """Clean a drawn sentence as `clean_sentence` says, its slots along: each keeps what is left of it, without spaces at its ends."""
    text = drawn.text
    if language.split("-")[0] in _TURKIC:
        text = text.replace("İ", "i").replace("I", "ı")
    lower = text.lower()
    if len(lower) != len(text):  # İ alone becomes two characters; nothing may move
        lower = "".join(small if len(small := letter.lower()) == 1 else letter for letter in text)
    spaced = "".join(" " if letter.isspace() else letter for letter in _PUNCTUATION.sub(" ", lower))
    dropped = {index for match in _UNSEEN_SPACE.finditer(spaced) for index in range(*match.span())}
    kept = [index for index in range(len(spaced)) if index not in dropped]
    cleaned = "".join(spaced[index] for index in kept)
    slots = []
    for slot in drawn.slots:
        start, end = bisect_left(kept, slot.start), bisect_left(kept, slot.end)
        inside = cleaned[start:end]
        start, end = start + len(inside) - len(inside.lstrip()), end - len(inside) + len(inside.rstrip())
        if start < end:
            slots.append(Slot(start, end, slot.name))
    return SlottedText(cleaned, tuple(slots))


def _unambiguous(sentences: Sequence[LabelledText], dropped: Counter[str]) -> list[LabelledText]:
    """Keep one sentence a text; drop texts with two labels, and from dev and test what train has too."""
    labels: dict[str, set[str]] = defaultdict(set)
    for sentence in sentences:
        labels[sentence.text].add(sentence.label)
    order: dict[Split, int] = {"train": 0, "dev": 1, "test": 2}
    first: dict[str, LabelledText] = {}
    for sentence in sorted(sentences, key=lambda sentence: order[sentence.split]):
        if len(labels[sentence.text]) > 1:
            dropped["sentence under two intents"] += 1
        elif sentence.text in first:
            same_split = first[sentence.text].split == sentence.split
            dropped["sentence repeated" if same_split else "sentence in an earlier split"] += 1
        else:
            first[sentence.text] = sentence
    return [sentence for sentence in sentences if first.get(sentence.text) is sentence]


def _rounded(value: float) -> int:
    return math.floor(value + 0.5)
