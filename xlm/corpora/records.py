"""What a reader yields: text as it stands in its source, before normalisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Nature = Literal["catalogue", "running"]


@dataclass(frozen=True, slots=True)
class RawText:
    """A text in one language; ``id`` is unique within its source; running text keeps its markup and gets sentence starts."""

    id: str
    text: str
    language: str
    nature: Nature = "catalogue"


@dataclass(frozen=True, slots=True)
class RawPair:
    """A text and its translation."""

    source: str
    target: str
    source_language: str
    target_language: str
    nature: Nature = "catalogue"


Record = RawText | RawPair
