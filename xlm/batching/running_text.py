"""Rows of running text, for MLM, CLM and RTD.

``documents``: every segment is a sequence of its own, ``<s> segment </s>``. ``full_sentences`` (RoBERTa, Liu et al.
2019, FULL-SENTENCES): a row is one sequence, ``<s> segment </s> segment </s>``, with a separator where the next
document begins.
"""

from __future__ import annotations

import numpy as np

from xlm.batching.arrangement import Arrangement
from xlm.batching.packed_rows import PieceIds, starts_of
from xlm.batching.texts import RowTexts


def documents(texts: RowTexts, pieces: PieceIds) -> Arrangement:
    """Arrange each segment as a sequence."""
    segments = np.arange(texts.items.size)
    return Arrangement(
        texts=segments,
        opened=np.ones(segments.size, dtype=np.bool_),
        opening_id=pieces.bos_id,
        stretches_per_sequence=np.ones_like(segments),
        sequences_per_row=texts.segments_per_row,
    )


def full_sentences(texts: RowTexts, pieces: PieceIds) -> Arrangement:
    """Arrange the segments of a row as one sequence."""
    opened = np.zeros(texts.items.size, dtype=np.bool_)
    opened[starts_of(texts.segments_per_row)] = True
    return Arrangement(
        texts=np.arange(texts.items.size),
        opened=opened,
        opening_id=pieces.bos_id,
        stretches_per_sequence=texts.segments_per_row,
        sequences_per_row=np.ones_like(texts.segments_per_row),
    )
