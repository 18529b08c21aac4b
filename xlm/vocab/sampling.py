"""Language-balanced text for vocabulary training.

SentencePiece's own sampling (`input_sentence_size`) is blind to language and not repeatable, so the text
is sampled here and SentencePiece takes every line it is given. Language l gets the share
q_l = p_l^alpha / sum_m p_m^alpha of the characters (exponential smoothing; Devlin et al. 2019, Conneau &
Lample 2019), p_l being its share of the corpus in characters; what a small language cannot fill goes to
the others in the same proportions. Within a language the lines with the smallest keyed hash are taken
(bottom-k sampling), which needs one pass, keeps only what is taken, and depends neither on the order of
the documents nor on the sampling of other languages.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from xlm.corpora.documents import split_pair_name
from xlm.corpora.store import document_languages, pair_names, read_documents, read_pairs
from xlm.errors import UserError
from xlm.seeding import key_int64

# SentencePiece skips longer lines without a word.
MAX_LINE_BYTES = 4192
# Characters that SentencePiece keeps for itself: it skips a line that holds one.
_RESERVED = ("\u2585", "\x00")


@dataclass
class TextSample:
    """Sampled lines, sorted by language and text, and what was found and left out on the way."""

    lines: list[str]
    characters: dict[str, int]  # sampled, by language
    available_characters: dict[str, int]  # in the corpus, by language
    counts: Counter[str] = field(default_factory=Counter)  # lines split, lines left out by reason


def sample_text(folder: Path, *, alpha: float, max_characters: int, seed: int) -> TextSample:
    """Draw at most ``max_characters`` from the corpus in ``folder``, balanced by language.

    Raises UserError for a corpus without text.
    """
    languages = text_languages(folder)
    available = {language: sum(map(len, _lines(folder, language, Counter()))) for language in languages}
    available = {language: size for language, size in available.items() if size}
    if not available:
        raise UserError("this corpus holds no text to train a vocabulary on; look at its summary.json.", file=folder)
    quotas = character_quotas(available, alpha=alpha, max_characters=max_characters)
    sample = TextSample([], {}, available)
    for language in sorted(available):
        taken = take_lines(_lines(folder, language, sample.counts), quotas[language], language=language, seed=seed)
        sample.lines.extend(sorted(taken))
        sample.characters[language] = sum(map(len, taken))
    return sample


def text_languages(folder: Path) -> list[str]:
    """Return every language of a corpus, sorted: those with documents, and those that only pairs have."""
    languages = set(document_languages(folder))
    for name in pair_names(folder):
        languages.update(split_pair_name(name))
    return sorted(languages)


def read_texts(folder: Path, language: str) -> Iterator[str]:
    """Yield the texts of a language: its documents, which hold every catalogue string once.

    A language that only pairs have gives each distinct side once.
    """
    if language in document_languages(folder):
        for document in read_documents(folder, language):
            yield document.text
        return
    seen: set[str] = set()
    for name in pair_names(folder):
        source, target = split_pair_name(name)
        if language in (source, target):
            for pair in read_pairs(folder, name):
                text = pair.source if language == source else pair.target
                if text not in seen:
                    seen.add(text)
                    yield text


def thin_texts(folder: Path, language: str, *, keep_share: float, seed: int) -> Iterator[str]:
    """Yield about ``keep_share`` of a language's texts, chosen by keyed hash, spread over the whole corpus."""
    limit = int(keep_share * (1 << 63))
    for text in read_texts(folder, language):
        if keep_share >= 1.0 or key_int64(seed, "coverage", language, text) < limit:
            yield text


def character_quotas(available: Mapping[str, int], *, alpha: float, max_characters: int) -> dict[str, int]:
    """Return how many characters each language may give: q = p^alpha of the budget, at most what it has.

    Languages that run out are fixed first and the rest is shared again among the others (water-filling).
    """
    quotas: dict[str, int] = {}
    open_weights = {language: (size / sum(available.values())) ** alpha for language, size in available.items()}
    budget = max_characters
    while open_weights:
        total = sum(open_weights.values())
        full = [language for language, weight in open_weights.items() if budget * weight / total >= available[language]]
        if not full:
            quotas.update({language: int(budget * weight / total) for language, weight in open_weights.items()})
            break
        for language in full:
            quotas[language] = available[language]
            budget -= available[language]
            del open_weights[language]
    return quotas


def take_lines(lines: Iterable[str], quota: int, *, language: str, seed: int) -> list[str]:
    """Return the lines with the smallest keyed hash whose lengths add up to at most ``quota`` characters.

    Equal lines are told apart by their count so far, so that frequent ones stay as frequent as they are.
    """
    heap: list[tuple[int, str]] = []
    seen: Counter[str] = Counter()
    size = 0
    for line in lines:
        heapq.heappush(heap, (-key_int64(seed, "vocabulary", language, line, seen[line]), line))
        seen[line] += 1
        size += len(line)
        while size > quota and heap:
            size -= len(heapq.heappop(heap)[1])
    return [line for _, line in heap]


def split_line(text: str, max_bytes: int = MAX_LINE_BYTES) -> list[str]:
    """Cut a text into pieces of at most ``max_bytes`` UTF-8 bytes, after white space where there is some."""
    if len(text.encode("utf-8", "surrogatepass")) <= max_bytes:
        return [text]
    pieces: list[str] = []
    start, size, last_space = 0, 0, -1
    position = 0
    while position < len(text):
        width = len(text[position].encode("utf-8", "surrogatepass"))
        if size + width > max_bytes:
            end = last_space + 1 if last_space >= start else position
            pieces.append(text[start:end])
            start, position, size, last_space = end, end, 0, -1
            continue
        if text[position].isspace():
            last_space = position
        size += width
        position += 1
    pieces.append(text[start:])
    return pieces


def _lines(folder: Path, language: str, counts: Counter[str]) -> Iterator[str]:
    for text in read_texts(folder, language):
        for line in text.splitlines():
            stripped = line.strip()
            if not stripped:
                continue
            if any(character in stripped for character in _RESERVED):
                counts["left out: holds a character SentencePiece reserves"] += 1
                continue
            # A tab, too, makes SentencePiece skip the line; to the vocabulary it is white space.
            pieces = split_line(stripped.replace("\t", " "))
            counts["split: longer than SentencePiece reads"] += len(pieces) > 1
            yield from pieces
