"""Slots of a sentence as tags on its words: B- for the first word of a slot, I- for its further ones, O for all others.

Words are those of `xlm.codeswitch.tokens`: in Chinese and Japanese each character is one. A slot's text need not end
where a word does (French l'entrée, a German compound): a word belongs to the slot that most of its characters, at
least half, are in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xlm.codeswitch.tokens import tokenise
from xlm.tasks.sampling import Slot

OUTSIDE = "O"


def tag_words(text: str, slots: Sequence[Slot]) -> tuple[str, ...]:
    """Return one tag a word of ``text``: ``O``, ``B-<slot>`` or ``I-<slot>``."""
    tags: list[str] = []
    previous: Slot | None = None
    for token in tokenise(text):
        overlaps = [(min(token.end, slot.end) - max(token.start, slot.start), slot) for slot in slots]
        shared, slot = max(overlaps, key=lambda overlap: overlap[0], default=(0, None))
        if slot is None or 2 * shared < token.end - token.start:
            tags.append(OUTSIDE)
            previous = None
        else:
            tags.append(f"{'I' if slot is previous else 'B'}-{slot.name}")
            previous = slot
    return tuple(tags)


def slot_names(tags: Iterable[str]) -> set[str]:
    """Return the names of the slots that occur."""
    return {tag[2:] for tag in tags if tag != OUTSIDE}
