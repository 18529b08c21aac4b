"""Which positions of a row are predicted, and what stands in their place (BERT, Devlin et al. 2019, section 3.1).

Everything but special pieces may be selected, over the whole row: short sequences of a packed row are masked
at the same rate as long ones. A selected position becomes ``<mask>`` with probability .8, a random piece with
.1 and stays with .1, unless the recipe has other shares. Random pieces are uniform over the whole vocabulary
without its special pieces (to within vocabulary / 2^32, 6e-5 of a piece's probability at 250,000 pieces).

A row's decisions come from its own seed, so they are the same on any rank and after any history.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xlm.batching.keyed_words import FATE, REPLACEMENT, Words, uniforms_of, words_at
from xlm.batching.masking_frequency import FrequencySelection
from xlm.batching.masking_rows import Chosen, Flags, RowGrid, Selection
from xlm.batching.masking_spans import SpanSelection
from xlm.batching.masking_tokens import TokenSelection
from xlm.batching.masking_words import WholeWordSelection
from xlm.batching.packed_rows import Ids, PieceIds
from xlm.config.phases import MaskingSection
from xlm.errors import UserError

_FATE_BITS = 63  # not 64: a share of 1 must fit into a word
_PIECE_BITS = np.uint64(32)
_LOW_HALF = np.uint64((1 << 32) - 1)


@dataclass(frozen=True, slots=True)
class Masked:
    """Ids after masking, the positions to predict (ascending) and the pieces that stood there."""

    input_ids: Ids  # [T]
    positions: Ids  # [P]
    labels: Ids  # [P]
    uniforms: NDArray[np.float64] | None = None  # [P] in [0, 1), RTD: draw the generator's pieces


class Masker:
    """Masks rows of one vocabulary in the way of one phase."""

    def __init__(self, pieces: PieceIds, masking: MaskingSection, piece_counts: NDArray[np.uint64] | None = None) -> None:
        """Prepare the tables; ``piece_counts`` [vocabulary] are occurrences in the corpus.

        Raises UserError where the selection needs counts and there are none.
        """
        self._mask_id = pieces.mask_id
        self._is_text: Flags = np.ones(pieces.size, dtype=np.bool_)
        self._is_text[list(pieces.special_ids)] = False
        self._last_special = max(pieces.special_ids)
        self._text_ids: Ids = np.flatnonzero(self._is_text)
        self._selection = _selection(pieces, masking, piece_counts)
        self._fates = _bounds(masking.masked_share, masking.random_share)
        self._rtd_fates = _bounds(masking.rtd_masked_share, 0.0)

    def mask(self, ids: Ids, row_lengths: Ids, rate: float, seeds: Words, *, spaced: Flags | None = None, rtd: bool = False) -> Masked:
        """Mask rows that lie end to end in ``ids`` [T]; ``row_lengths`` and ``seeds`` are [R].

        ``spaced`` [T] says where words are told apart by spaces (`xlm.batching.words`); None: everywhere. For
        ``rtd`` nothing is random (ELECTRA's generator input). ``ids`` stay as they are.
        """
        grid = RowGrid(ids, row_lengths, seeds, self._is_text, self._last_special)
        chosen = self._selection.choose(grid, rate, spaced)
        positions = grid.positions(chosen)
        labels = ids[positions]
        masked = ids.copy()
        masked[positions] = self._shown(chosen, seeds[chosen.rows], labels, *(self._rtd_fates if rtd else self._fates))
        return Masked(masked, positions, labels, uniforms_of(words_at(seeds[chosen.rows], chosen.places, REPLACEMENT)) if rtd else None)

    def _shown(self, chosen: Chosen, seeds: Words, labels: Ids, masked_below: np.uint64, random_below: np.uint64) -> Ids:
        words = words_at(seeds, chosen.places, FATE)
        fates = words if chosen.deciders is None else words_at(seeds, chosen.deciders, FATE)
        fates = fates >> np.uint64(64 - _FATE_BITS)
        shown: Ids = np.where(fates < masked_below, self._mask_id, labels)
        random = np.flatnonzero((fates >= masked_below) & (fates < random_below))
        # The high bits of a word say what becomes of a position, its low ones which piece that would be.
        shown[random] = self._text_ids[((words[random] & _LOW_HALF) * np.uint64(self._text_ids.size)) >> _PIECE_BITS]
        return shown


def _bounds(masked_share: float, random_share: float) -> tuple[np.uint64, np.uint64]:
    one = 1 << _FATE_BITS
    return np.uint64(round(masked_share * one)), np.uint64(min(one, round((masked_share + random_share) * one)))


def _selection(pieces: PieceIds, masking: MaskingSection, piece_counts: NDArray[np.uint64] | None) -> Selection:
    if masking.selection == "whole_word":
        return WholeWordSelection(pieces.is_word_start)
    if masking.selection == "span":
        return SpanSelection(pieces.is_word_start, masking.span)
    if masking.selection == "frequency":
        if piece_counts is None:
            raise UserError(
                "masking.selection is frequency, and these shards say nothing of how often each piece occurs; build them "
                "again with pipelines/build_shards.py, or choose token, whole_word or span."
            )
        return FrequencySelection(piece_counts, masking.frequency_alpha)
    return TokenSelection()
