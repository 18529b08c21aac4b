"""Which positions of a row are predicted, and what stands in their place (BERT, Devlin et al. 2019, section 3.1).

Of a row's maskable positions (everything but special pieces) exactly round-half-up(rate x maskable) are
selected, at least one where there is any, uniformly over the whole row: short sequences of a packed row
are masked at the same rate as long ones. A selected position becomes ``<mask>`` with probability .8, a
random piece with .1 and stays with .1. Random pieces are uniform over the whole vocabulary without its
special pieces.

A row's decisions come from its own key, so they are the same on any rank and after any history. Raw words
of a generator are used, because a library's own sampling may change between versions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xlm.batching.keyed_words import KeyedWords
from xlm.batching.packed_rows import NO_IDS, Ids, PieceIds

MASKED_SHARE = 0.8
RANDOM_SHARE = 0.1
_WORD = 1 << 64
_MASKED_BELOW = np.uint64(round(MASKED_SHARE * _WORD))
_RANDOM_BELOW = np.uint64(round((MASKED_SHARE + RANDOM_SHARE) * _WORD))
_HALF_WORD_BITS = np.uint64(32)


@dataclass(frozen=True, slots=True)
class Masked:
    """Ids after masking, the positions to predict (ascending) and the pieces that stood there."""

    input_ids: Ids  # [T]
    positions: Ids  # [P]
    labels: Ids  # [P]


def predictions_in(maskable: int, rate: float) -> int:
    """Return how many of ``maskable`` positions are predicted: rate x maskable, a half rounded up, at least one if any."""
    return min(maskable, max(1, math.floor(rate * maskable + 0.5)))


class Masker:
    """Masks rows of one vocabulary."""

    def __init__(self, pieces: PieceIds) -> None:
        self._mask_id = pieces.mask_id
        self._is_text: NDArray[np.bool_] = np.ones(pieces.size, dtype=np.bool_)
        self._is_text[list(pieces.special_ids)] = False
        self._text_ids: Ids = np.flatnonzero(self._is_text)

    def mask(self, ids: Ids, row_lengths: Ids, rate: float, keys: Sequence[bytes]) -> Masked:
        """Mask rows that lie end to end in ``ids`` [T]; ``row_lengths`` is [R], and each row has its key [R].

        ``ids`` stay as they are.
        """
        maskable = np.flatnonzero(self._is_text[ids])
        bounds = np.searchsorted(maskable, np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(row_lengths)])).tolist()
        source = KeyedWords()
        chosen: list[Ids] = []
        words: list[NDArray[np.uint64]] = []  # two a prediction: all of a row's fates, then all of its pieces
        for first, last, key in zip(bounds[:-1], bounds[1:], keys, strict=True):
            count = predictions_in(last - first, rate)
            if not count:
                continue
            drawn = source.draw(key, last - first + 2 * count)
            # The places of the `count` smallest of independent words are a uniform choice.
            places = np.argpartition(drawn[: last - first], count - 1)[:count]
            places.sort()
            chosen.append(maskable[first + places])
            words.append(drawn[last - first :].reshape(2, count))
        if not chosen:
            return Masked(ids, NO_IDS, NO_IDS)
        positions = np.concatenate(chosen)
        fate, piece = np.concatenate(words, axis=1)
        labels = ids[positions]
        random_ids = self._text_ids[((piece >> _HALF_WORD_BITS) * np.uint64(self._text_ids.size)) >> _HALF_WORD_BITS]
        masked = ids.copy()
        masked[positions] = np.where(fate < _MASKED_BELOW, self._mask_id, np.where(fate < _RANDOM_BELOW, random_ids, labels))
        return Masked(masked, positions, labels)
