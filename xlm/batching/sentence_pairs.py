"""Rows of two spans a sequence, ``<s> A </s> B </s>``, token type 0 up to the first ``</s>`` and 1 after it.

NSP (next sentence prediction, Devlin et al. 2019): the row plan has put a span of another document in B's
place in half of the sequences; those have label 1. SOP (sentence order prediction, Lan et al. 2020): B always
continues A, and half of the sequences, drawn by the row's seed, show B first; those have label 1. Both are masked
as MLM is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xlm.batching.arrangement import Arrangement
from xlm.batching.keyed_words import Words
from xlm.batching.packed_rows import Ids, PieceIds
from xlm.batching.texts import RowTexts
from xlm.batching.tlm import alternating, coins


def next_sentence(texts: RowTexts, pieces: PieceIds) -> Arrangement:
    """Arrange segments by twos, as the plan has them; label 1 where B does not continue A."""
    items, offsets = texts.items, texts.offsets
    follows = (items[0::2] == items[1::2]) & (offsets[0::2] + texts.lengths[0, 0::2] == offsets[1::2])
    return _by_twos(texts, np.arange(items.size), ~follows, pieces)


def sentence_order(texts: RowTexts, seeds: Words, pieces: PieceIds) -> Arrangement:
    """Arrange segments by twos, swapped where the row's seed says so; label 1 there."""
    swapped = coins(seeds, texts.segments_per_row // 2)
    firsts = np.arange(0, texts.items.size, 2)
    order = np.empty((firsts.size, 2), dtype=np.int64)
    order[:, 0] = firsts + swapped
    order[:, 1] = firsts + ~swapped
    return _by_twos(texts, order.ravel(), swapped, pieces)


def _by_twos(texts: RowTexts, order: Ids, labels: NDArray[np.bool_], pieces: PieceIds) -> Arrangement:
    count = labels.size
    return Arrangement(
        texts=order,
        opened=alternating(count, 1, 0).astype(np.bool_),
        opening_id=pieces.bos_id,
        stretches_per_sequence=np.full(count, 2, dtype=np.int64),
        sequences_per_row=texts.segments_per_row // 2,
        token_types=alternating(count, 0, 1),
        sequence_labels=labels.astype(np.int64),
    )
