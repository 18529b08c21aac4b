"""From normalised text to a corpus: what only the whole shows is settled here.

Held-out text goes first: a document that matches an evaluation text, and every translation of an
English side that does. Then each (English, translation) is kept once over all packages, and at most
two translations of one English text, the most frequent ones: a third is more often another meaning
than another wording. The monolingual text of a language is its running text and every catalogue
string once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from xlm.corpora.documents import Document, SentencePair, split_pair_name
from xlm.corpora.drops import DropCounts
from xlm.corpora.fold import fold, folded_key
from xlm.corpora.held_out import EXACT, HeldOutText
from xlm.corpora.script import script_code
from xlm.corpora.store import document_languages, pair_names, read_documents, read_pairs, write_documents, write_pairs
from xlm.runs.progress import Progress
from xlm.seeding import keyed_generator

MAX_TRANSLATIONS = 2
DUPLICATE, TOO_MANY, OVER_LIMIT = "duplicate", "more than two translations", "over the limit of documents"
HELD_OUT, NEAR_HELD_OUT = "held out for evaluation", "near-duplicate of held-out text"
# Scripts that put no space between words; their size is counted in characters.
_UNSPACED = frozenset({"Hans", "Hant", "Jpan", "Thai"})


@dataclass
class CorpusCounts:
    """What a cleaned corpus holds, for people and for the sampling table."""

    documents: Counter[str] = field(default_factory=Counter)  # by language
    words: Counter[str] = field(default_factory=Counter)  # by language; characters where words are not spaced
    characters: Counter[str] = field(default_factory=Counter)  # by language
    pairs: Counter[str] = field(default_factory=Counter)  # by pair corpus
    by_source: Counter[tuple[str, str]] = field(default_factory=Counter)  # documents, by (language, source)

    def summary(self, drops: DropCounts) -> dict[str, Any]:
        """Return everything as JSON: kept by language, pair and source, dropped by language, source and reason."""
        sources: dict[str, dict[str, int]] = {}
        for (language, source), amount in sorted(self.by_source.items()):
            sources.setdefault(language, {})[source] = amount
        languages = {
            language: {
                "documents": self.documents[language],
                "words": self.words[language],
                "word_unit": "characters" if is_unspaced(language) else "words",
                "characters": self.characters[language],
                "by_source": sources.get(language, {}),
            }
            for language in sorted(self.documents)
        }
        return {"languages": languages, "pairs": dict(sorted(self.pairs.items())), "dropped": drops.nested()}


def clean_corpus(
    normalised: Path, folder: Path, *, held_out: HeldOutText | None, max_documents: int | None, seed: int, drops: DropCounts
) -> CorpusCounts:
    """Write the cleaned documents and pairs of ``normalised`` to ``folder``; what is left out is added to ``drops``."""
    counts = CorpusCounts()
    languages, names = document_languages(normalised), pair_names(normalised)
    sides: dict[str, dict[str, Document]] = {}
    every_language = sorted({*languages, *(language for name in names for language in split_pair_name(name))})
    with Progress("clean", total=len(names) + len(every_language), unit="files") as progress:
        codes = _HeldOutCodes(held_out)
        for name in names:
            kept = _clean_pairs(list(read_pairs(normalised, name)), codes, drops)
            # A corpus of nothing has no file, so that a stage after this one says that it is missing.
            counts.pairs[name] = write_pairs(folder, name, kept) if kept else 0
            _collect_sides(kept, sides)
            progress.advance(note=name)
        for language in every_language:
            running = read_documents(normalised, language) if language in languages else iter(())
            documents = _clean_documents(running, sides.pop(language, {}), codes, drops)
            documents = _limited(documents, max_documents, language, seed, drops)
            if documents:
                write_documents(folder, language, documents)
            _count(documents, language, counts)
            progress.advance(note=language)
    return counts


class _HeldOutCodes:
    """Ask about each text once: the English side of a pair comes back in every language."""

    def __init__(self, held_out: HeldOutText | None) -> None:
        self._held_out = held_out
        self._known: dict[str, int] = {}

    def learn(self, texts: Iterable[str]) -> None:
        """Look up all texts together, which is what makes it fast."""
        if self._held_out is None:
            return
        fresh = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known.update(zip(fresh, self._held_out.matches(fresh).tolist(), strict=True))

    def reason(self, text: str) -> str | None:
        """Return why a learnt text must not be trained on, or None."""
        code = self._known.get(text, 0)
        return None if code == 0 else HELD_OUT if code == EXACT else NEAR_HELD_OUT


def _clean_pairs(pairs: list[SentencePair], codes: _HeldOutCodes, drops: DropCounts) -> list[SentencePair]:
    """Return the pairs of one pair corpus that are kept, in their order."""
    codes.learn(text for pair in pairs for text in (pair.source, pair.target))
    first: dict[tuple[str, str], SentencePair] = {}
    seen: Counter[tuple[str, str]] = Counter()
    for pair in pairs:
        reason = codes.reason(pair.source) or codes.reason(pair.target)
        if reason is not None:
            drops.add(pair.target_language, pair.corpus, reason)
            continue
        # The key is one side folded (the English one, where there is one), so the other side completes it.
        identity = (pair.key, fold(pair.source if pair.target_language == "en" else pair.target))
        seen[identity] += 1
        if identity in first:
            drops.add(pair.target_language, pair.corpus, DUPLICATE)
        else:
            first[identity] = pair
    by_key: dict[str, list[tuple[str, str]]] = {}
    for identity in first:
        by_key.setdefault(identity[0], []).append(identity)
    for identities in by_key.values():
        # Sorting is stable: among translations equally frequent, the earlier source of the manifest wins.
        for identity in sorted(identities, key=lambda one: -seen[one])[MAX_TRANSLATIONS:]:
            pair = first.pop(identity)
            drops.add(pair.target_language, pair.corpus, TOO_MANY)
    return list(first.values())


def _collect_sides(pairs: list[SentencePair], sides: dict[str, dict[str, Document]]) -> None:
    """Add both sides of each pair to the monolingual text of their languages, once by folded text."""
    for pair in pairs:
        for text, language in ((pair.source, pair.source_language), (pair.target, pair.target_language)):
            folded = fold(text)
            known = sides.setdefault(language, {})
            if folded not in known:
                known[folded] = Document(f"{pair.corpus}:{folded_key(folded)}", text, language, pair.corpus)


def _clean_documents(documents: Iterator[Document], sides: dict[str, Document], codes: _HeldOutCodes, drops: DropCounts) -> list[Document]:
    """Return a language's documents once each, then the sides of its pairs that are not among them."""
    own = list(documents)
    codes.learn(document.text for document in own)
    kept: list[Document] = []
    seen: set[str] = set()
    for document in own:
        folded = fold(document.text)
        reason = codes.reason(document.text) or (DUPLICATE if folded in seen else None)
        if reason is not None:
            drops.add(document.language, document.corpus, reason)
            continue
        seen.add(folded)
        kept.append(document)
    kept += [document for folded, document in sides.items() if folded not in seen]
    return kept


def _limited(documents: list[Document], limit: int | None, language: str, seed: int, drops: DropCounts) -> list[Document]:
    """Return a sample of at most ``limit`` documents in their order, the same one for the same seed and number."""
    if limit is None or len(documents) <= limit:
        return documents
    generator = keyed_generator("corpora", "limit", seed, language)
    chosen = np.sort(generator.choice(len(documents), size=limit, replace=False)).tolist()
    left_out = set(range(len(documents))).difference(chosen)
    for index in left_out:
        drops.add(language, documents[index].corpus, OVER_LIMIT)
    return [documents[index] for index in chosen]


def _count(documents: list[Document], language: str, counts: CorpusCounts) -> None:
    unspaced = is_unspaced(language)
    counts.documents[language] = len(documents)
    for document in documents:
        length = len(document.text)
        counts.characters[language] += length
        counts.words[language] += length if unspaced else document.text.count(" ") + 1
        counts.by_source[language, document.corpus] += 1


def is_unspaced(language: str) -> bool:
    """Return whether a language's script puts no space between words, so that its size is counted in characters."""
    return script_code(language) in _UNSPACED


def summary_table(summary: dict[str, Any]) -> str:
    """Return a plain table of a corpus summary: one language a line, then the reasons for what was dropped."""
    drops = DropCounts()
    drops.merge(summary["dropped"])
    lines = [f"{'language':<10}{'documents':>11}{'words':>13}{'pairs':>9}{'dropped':>9}  mostly"]
    pairs = Counter[str]()
    for name, amount in summary["pairs"].items():
        for language in split_pair_name(name):
            pairs[language] += amount
    for language, kept in summary["languages"].items():
        reasons = drops.by_reason([language])
        mostly = ", ".join(f"{reason} {amount:,}" for reason, amount in reasons.most_common(2))
        words = f"{kept['words']:,}" + ("c" if kept["word_unit"] == "characters" else " ")
        lines.append(f"{language:<10}{kept['documents']:>11,}{words:>13}{pairs[language]:>9,}{reasons.total():>9,}  {mostly}")
    lines.append("(c: characters, where words are not spaced; a pair counts in both of its languages)")
    lines += [f"dropped {amount:>9,}  {reason}" for reason, amount in drops.by_reason().most_common()]
    return "\n".join(lines)
