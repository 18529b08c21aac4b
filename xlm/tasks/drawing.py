"""Draw all evaluation sets of a recipe and write them, before the corpus is cleaned.

First the sets, then the hashes of all their text, then the corpus without that text: no text a model is
scored on, and no near copy, is trained on, in any split, on either side of a pair. (Inside a longer text it
may be: docs/evaluation.md.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xlm.config.recipe import TasksSection
from xlm.corpora.documents import SentencePair, pair_name
from xlm.corpora.held_out import HeldOutText
from xlm.corpora.store import pair_names, read_documents, read_pairs
from xlm.errors import UserError
from xlm.runs.progress import Progress
from xlm.runs.stage import write_json
from xlm.tasks.evaluation_sets import HELD_OUT, INTENTS, TASKS_RECORD, TOPICS, save_labelled, save_retrieval, set_fingerprint
from xlm.tasks.fillers import CatalogueName, catalogue_names, filler_halves
from xlm.tasks.grammar import Grammar, load_grammar
from xlm.tasks.intents import IntentDraw, draw_intents
from xlm.tasks.retrieval import RetrievalDraw, draw_retrieval
from xlm.tasks.topics import TopicDraw, draw_topics

ENGLISH = "en"
# A pool of one pair is found by every system.
SMALLEST_POOL = 2


@dataclass(frozen=True)
class EvaluationSets:
    """Everything drawn for one recipe; ``labels`` is the label set of the intents, sorted."""

    labels: tuple[str, ...]
    intents: tuple[IntentDraw, ...]
    retrieval: tuple[RetrievalDraw, ...]
    topics: tuple[TopicDraw, ...] = ()

    def texts(self) -> Iterator[str]:
        """Yield every text of every set, split and side, but training articles: what pretraining must not see."""
        for intents in self.intents:
            yield from (sentence.text for sentence in intents.sentences)
        for pools in self.retrieval:
            for pair in (*pools.test, *pools.dev):
                yield pair.source
                yield pair.target
        for topics in self.topics:
            yield from (article.text for article in topics.articles if article.split != "train")


def draw_evaluation_sets(
    section: TasksSection,
    normalised: Path,
    intents_wheel: Path,
    codes: Mapping[str, str],
    topics: Mapping[str, Mapping[str, str]] | None = None,
) -> EvaluationSets:
    """Draw intents, retrieval pools and, where the recipe has them, topics for the languages of a recipe.

    ``normalised`` is the folder of the normalised corpus, ``intents_wheel`` the home-assistant-intents
    archive and ``codes`` what it calls the languages; ``topics`` as `read_topics` returns them. Raises
    UserError for a language that one of them lacks.
    """
    check_languages(section.languages, normalised)
    grammars = {language: load_grammar(intents_wheel, language, codes.get(language)) for language in section.languages}
    labels = tuple(sorted({template.label for template in grammars[ENGLISH].templates}))
    pools: list[RetrievalDraw] = []
    names: dict[str, list[CatalogueName]] = {ENGLISH: []}
    with Progress("evaluation sets", total=2 * len(section.languages) - 1, unit="sets") as progress:
        for language in section.languages:
            if language == ENGLISH:
                continue
            pairs = list(read_pairs(normalised, pair_name(ENGLISH, language)))
            pools.append(draw_retrieval(language, pairs, section.retrieval, section.seed))
            names[language] = catalogue_names(pairs)
            _add_names(names[ENGLISH], pairs)
            progress.advance(note=f"retrieval {language}")
        drawn = []
        for language in section.languages:
            drawn.append(_intents_of(grammars[language], names[language], labels, section))
            progress.advance(note=f"intents {language}")
    articles = []
    if section.topics is not None:
        for language, class_of in (topics or {}).items():
            articles.append(draw_topics(language, read_documents(normalised, language), class_of, section.topics, section.seed))
    return EvaluationSets(labels, tuple(drawn), tuple(pools), tuple(articles))


def write_evaluation_sets(
    sets: EvaluationSets, section: TasksSection, folder: Path, sources: Sequence[Mapping[str, str]], manifest_fingerprint: str
) -> dict[str, Any]:
    """Write the sets, their record and the hashes of their text to ``folder``; return the record.

    ``sources`` name the packages the text comes from, each with its licence.
    """
    held_out = HeldOutText.build(sets.texts())
    held_out.save(folder / HELD_OUT)
    for intents in sets.intents:
        save_labelled(folder, INTENTS, intents.language, intents.sentences)
    for topics in sets.topics:
        save_labelled(folder, TOPICS, topics.language, topics.articles)
    left_out: dict[str, str] = {}
    for pools in sets.retrieval:
        if len(pools.test) < SMALLEST_POOL:
            left_out[pools.language] = f"only {len(pools.test)} pairs can be held out of {pools.english_strings} English strings"
            continue
        save_retrieval(folder, pools.language, pools.test)
        save_retrieval(folder, pools.language, pools.dev, dev=True)
    record = {
        "seed": section.seed,
        "manifest": manifest_fingerprint,
        "sources": [dict(source) for source in sources],
        "labels": list(sets.labels),
        "intents": {intents.language: _intents_record(intents, section) for intents in sets.intents},
        "retrieval": {pools.language: _pools_record(pools, section) for pools in sets.retrieval if pools.language not in left_out},
        "topics": {
            topics.language: {
                "articles": len(topics.articles),
                "splits": topics.split_counts(),
                "dropped": dict(topics.dropped),
                "fingerprint": set_fingerprint(topics.articles),
            }
            for topics in sets.topics
        },
        "retrieval_left_out": left_out,
        "retrieval_smaller_than_max_pool": [
            pools.language for pools in sets.retrieval if len(pools.test) < section.retrieval.max_pool and pools.language not in left_out
        ],
        "held_out_texts": len(held_out),
    }
    write_json(folder / TASKS_RECORD, record)
    return record


def check_languages(languages: Sequence[str], normalised: Path) -> None:
    """Raise UserError unless English is among the languages and each other one has pairs with it."""
    if ENGLISH not in languages:
        raise UserError(f"tasks.languages has no '{ENGLISH}', in which the intents are trained; add it.")
    there = [name.removeprefix(pair_name(ENGLISH, "")) for name in pair_names(normalised) if name.startswith(pair_name(ENGLISH, ""))]
    missing = [language for language in languages if language != ENGLISH and language not in there]
    if missing:
        raise UserError(
            f"tasks.languages asks for '{missing[0]}', which the corpus has no pairs with English for; it has "
            f"{', '.join(sorted(there)) or 'none'}. Add a source to the manifest or take the language out of the recipe."
        )


def _add_names(english: list[CatalogueName], pairs: Sequence[SentencePair]) -> None:
    known = {name.key for name in english}
    english.extend(name for name in catalogue_names(pairs, english=True) if name.key not in known)


def _intents_of(grammar: Grammar, names: Sequence[CatalogueName], labels: Sequence[str], section: TasksSection) -> IntentDraw:
    fillers = filler_halves(names, section.seed)
    return draw_intents(grammar, fillers, labels, section.intents, section.seed, source=grammar.language == ENGLISH)


def _intents_record(intents: IntentDraw, section: TasksSection) -> dict[str, Any]:
    return {
        "sentences": len(intents.sentences),
        "templates": len({sentence.template for sentence in intents.sentences}),
        "splits": intents.split_counts(),
        "classes": intents.class_counts(),
        "shown_only": intents.language in section.intents.shown_only_languages,
        "dropped": dict(intents.dropped),
        "fingerprint": set_fingerprint(intents.sentences),
    }


def _pools_record(pools: RetrievalDraw, section: TasksSection) -> dict[str, Any]:
    return {
        "pool": len(pools.test),
        "dev_pool": len(pools.dev),
        "english_strings": pools.english_strings,
        "fills_max_pool": len(pools.test) == section.retrieval.max_pool,
        "not_drawn": dict(pools.dropped),
        "fingerprint": set_fingerprint(pools.test),
        "dev_fingerprint": set_fingerprint(pools.dev),
    }
