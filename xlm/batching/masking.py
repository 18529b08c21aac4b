"""Which positions of a row are predicted, and what stands in their place (BERT, Devlin et al. 2019, section 3.1).

Of a row's maskable positions (everything but special pieces) exactly round-half-up(rate x maskable) are
selected, at least one where there is any, uniformly over the whole row: short sequences of a packed row
are masked at the same rate as long ones. A selected position becomes ``<mask>`` with probability .8, a
random piece with .1 and stays with .1. Random pieces are uniform over the whole vocabulary without its
special pieces.

A row's decisions come from its own keyed generator, so they are the same on any rank and after any
history. Raw words of the generator are used, because a library's own sampling may change between versions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xlm.batching.row_tokens import NO_PREDICTIONS, Ids, PieceIds

MASKED_SHARE = 0.8
RANDOM_SHARE = 0.1
_WORD = 1 << 64
_MASKED_BELOW = np.uint64(round(MASKED_SHARE * _WORD))
_RANDOM_BELOW = np.uint64(round((MASKED_SHARE + RANDOM_SHARE) * _WORD))
_HALF_WORD_BITS = np.uint64(32)


@dataclass(frozen=True, slots=True)
class Masked:
    """A row's ids after masking, the positions to predict (ascending) and the pieces that stood there."""

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

    def mask(self, ids: Ids, rate: float, generator: np.random.Generator) -> Masked:
        """Mask a row: ``ids`` [T] stay as they are, the result holds a copy."""
        maskable = np.flatnonzero(self._is_text[ids])
        if not maskable.size:
            return Masked(ids, NO_PREDICTIONS, NO_PREDICTIONS)
        count = predictions_in(maskable.size, rate)
        words = generator.bit_generator.random_raw(maskable.size + 2 * count)
        order, fate, piece = np.split(words, [maskable.size, maskable.size + count])
        # The positions of the `count` smallest of independent words are a uniform choice.
        chosen = maskable[np.sort(np.argpartition(order, count - 1)[:count])]
        labels = ids[chosen]
        random_ids = self._text_ids[((piece >> _HALF_WORD_BITS) * np.uint64(self._text_ids.size)) >> _HALF_WORD_BITS]
        masked = ids.copy()
        masked[chosen] = np.where(fate < _MASKED_BELOW, self._mask_id, np.where(fate < _RANDOM_BELOW, random_ids, labels))
        return Masked(masked, chosen, labels)
