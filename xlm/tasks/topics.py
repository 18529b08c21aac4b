"""Topics of encyclopaedia articles: natural prose beside the sentences that templates make.

Seven classes exist in every language; what each language calls them stands here. English has train, dev and test, other
languages test only, and an article is the unit that intervals resample. Of dev and test articles the text is kept out of
pretraining; the same person or town may have an article of its own in another language.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from xlm.config.recipe import TopicsSection
from xlm.corpora.archive import Archive
from xlm.corpora.documents import Document
from xlm.corpora.fold import fold
from xlm.corpora.manifest import Manifest, WikiSummariesFormat
from xlm.corpora.readers.wiki_summaries import article_topics
from xlm.errors import UserError
from xlm.seeding import key_digest
from xlm.tasks.evaluation_sets import LabelledText, Split

ENGLISH = "en"
CLASSES: Mapping[str, Mapping[str, str]] = {
    "arts": {"en": "Arts", "fr": "Arts et culture", "es": "Artes"},
    "geography": {"en": "Geography", "fr": "Géographie", "es": "Geografía"},
    "history": {"en": "History", "fr": "Histoire", "es": "Historia"},
    "mathematics": {"en": "Mathematics", "fr": "Mathématiques", "es": "Matemáticas"},
    "people": {"en": "People", "fr": "Personnalités", "es": "Personas"},
    "philosophy and religion": {"en": "Philosophy and religion", "fr": "Philosophie et religion", "es": "Filosofía y religión"},
    "technology": {"en": "Technology", "fr": "Technologie", "es": "Tecnología"},
}
LANGUAGES = tuple(next(iter(CLASSES.values())))


@dataclass(frozen=True)
class TopicDraw:
    """A language's articles, and what was left out, by reason."""

    language: str
    articles: tuple[LabelledText, ...]
    dropped: Mapping[str, int]

    def split_counts(self) -> dict[str, int]:
        """Return articles by split."""
        return dict(sorted(Counter(article.split for article in self.articles).items()))


def read_topics(manifest: Manifest, wheel: Path, section: TopicsSection) -> dict[str, dict[str, str]]:
    """Return the class of each article by the id of its document, for every language of the section.

    Raises UserError for a source that has no topics, and for a language whose classes are not known here.
    """
    source = manifest.wheel(section.source)
    if not isinstance(source.format, WikiSummariesFormat):
        raise UserError(f"tasks.topics.source is '{section.source}', which has no topics; name a source of the kind wiki_summaries.")
    if ENGLISH not in section.languages:
        raise UserError(f"tasks.topics.languages has no '{ENGLISH}', in which topics are trained; add it.")
    for language in section.languages:
        if language not in LANGUAGES or language not in source.languages:
            known = ", ".join(code for code in LANGUAGES if code in source.languages)
            raise UserError(f"tasks.topics.languages asks for '{language}'; topics are known in {known}.")
    with Archive(wheel) as archive:
        found = {}
        for language in section.languages:
            name_of = {names[language]: name for name, names in CLASSES.items()}
            topics = article_topics(source, source.format, archive, language)
            found[language] = {f"{source.name}:{title}": name_of[topic] for title, topic in topics.items() if topic in name_of}
    return found


def draw_topics(language: str, documents: Iterable[Document], class_of: Mapping[str, str], section: TopicsSection, seed: int) -> TopicDraw:
    """Draw a language's articles, class by class in a keyed order; raises UserError for a class without articles enough."""
    dropped: Counter[str] = Counter()
    texts: set[str] = set()
    by_class: dict[str, list[Document]] = defaultdict(list)
    for document in documents:
        label, folded = class_of.get(document.id), fold(document.text)
        if label is None:
            continue
        if folded in texts:
            dropped["repeated"] += 1
            continue
        texts.add(folded)
        by_class[label].append(document)
    articles: list[LabelledText] = []
    for label in CLASSES:
        order = sorted(by_class[label], key=lambda document: key_digest(seed, "topics", document.id))
        sizes: list[tuple[Split, int]] = [("test", section.test_per_class)]
        if language == ENGLISH:
            sizes = [("dev", section.dev_per_class), *sizes, ("train", section.train_per_class)]
        needed = sum(size for split, size in sizes if split != "train") + (language == ENGLISH)
        if len(order) < needed:
            raise UserError(
                f"'{language}' has {len(order)} articles about {label}; {needed} are needed: lower tasks.topics.test_per_class or "
                "dev_per_class."
            )
        for split, size in sizes:
            drawn, order = order[:size], order[size:]
            articles += [LabelledText(document.id, document.text, label, document.id, split) for document in drawn]
        dropped["not drawn"] += len(order)
    return TopicDraw(language, tuple(articles), {reason: count for reason, count in dropped.items() if count})
