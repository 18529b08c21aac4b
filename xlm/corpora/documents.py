"""What the rest of the pipeline calls text: documents and sentence pairs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Document:
    """One text in one language (BCP-47); ``sentence_starts`` are character offsets, None where unknown."""

    id: str
    text: str
    language: str
    corpus: str
    sentence_starts: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class SentencePair:
    """A text and its translation; pairs with the same ``key`` say the same thing (n-way parallel text)."""

    key: str
    source: str
    target: str
    source_language: str
    target_language: str
    corpus: str


def pair_name(source_language: str, target_language: str) -> str:
    """Name a pair corpus: ``en_zh-Hans``. BCP-47 tags hold no underscore, so the name splits back."""
    return f"{source_language}_{target_language}"


def split_pair_name(name: str) -> tuple[str, str]:
    """Return the two languages of a pair corpus's name."""
    source, _, target = name.partition("_")
    return source, target
