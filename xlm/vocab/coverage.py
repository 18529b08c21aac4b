"""How well a vocabulary serves each language: the table a reader looks at before training anything.

Fertility (pieces per word; Rust et al. 2021, "How good is your tokenizer?") says how long sequences get.
Where words are not written apart it is given per character only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from xlm.vocab.vocabulary import Vocabulary

# Languages (without script or region) whose words are not separated by spaces.
UNSPACED_LANGUAGES = frozenset({"zh", "ja", "th", "lo", "km", "my", "bo", "yue", "wuu"})
_BATCH_TEXTS = 4096


@dataclass(frozen=True)
class LanguageCoverage:
    """One row of the table; rates are shares of the pieces, ``vocabulary_used`` counts distinct pieces."""

    language: str
    texts: int
    characters: int
    pieces: int
    pieces_per_word: float | None
    pieces_per_character: float
    unknown_rate: float
    byte_rate: float
    vocabulary_used: int

    def as_json(self) -> dict[str, Any]:
        """Return the row for coverage.json."""
        return asdict(self)


def writes_words_apart(language: str) -> bool:
    """Return whether white space separates the words of a BCP-47 language."""
    return language.split("-")[0] not in UNSPACED_LANGUAGES


def measure_coverage(vocabulary: Vocabulary, language: str, texts: Iterable[str]) -> LanguageCoverage:
    """Encode ``texts`` and count; the text is streamed, never held."""
    used = np.zeros(vocabulary.size, dtype=np.int64)
    count = characters = words = 0
    batch: list[str] = []

    def add(batch: Sequence[str]) -> None:
        if batch:
            used[:] += np.bincount(np.concatenate(vocabulary.encode_batch(batch)), minlength=vocabulary.size)

    for text in texts:
        count += 1
        characters += len(text)
        words += len(text.split())
        batch.append(text)
        if len(batch) == _BATCH_TEXTS:
            add(batch)
            batch = []
    add(batch)
    pieces = int(used.sum())
    byte_pieces = int(used[vocabulary.is_byte].sum())
    return LanguageCoverage(
        language=language,
        texts=count,
        characters=characters,
        pieces=pieces,
        pieces_per_word=_ratio(pieces, words) if writes_words_apart(language) else None,
        pieces_per_character=_ratio(pieces, characters),
        unknown_rate=_ratio(int(used[vocabulary.unk_id]), pieces),
        byte_rate=_ratio(byte_pieces, pieces),
        vocabulary_used=int((used > 0).sum()),
    )


def coverage_table(rows: Sequence[LanguageCoverage]) -> str:
    """Return the table as aligned text, one language a line."""
    header = f"{'language':<10} {'characters':>12} {'pieces':>10} {'per word':>9} {'per char':>9} {'unknown':>8} {'bytes':>8} {'used':>7}"
    lines = [header]
    for row in rows:
        per_word = f"{row.pieces_per_word:.2f}" if row.pieces_per_word is not None else "–"
        lines.append(
            f"{row.language:<10} {row.characters:>12,} {row.pieces:>10,} {per_word:>9} {row.pieces_per_character:>9.3f} "
            f"{row.unknown_rate:>8.3%} {row.byte_rate:>8.3%} {row.vocabulary_used:>7,}"
        )
    return "\n".join(lines)


def _ratio(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0
