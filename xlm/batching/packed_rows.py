"""Rows of one objective, laid out and ready to be joined to a batch. No torch here.

Shapes: R rows, S sequences, T tokens, P predictions. Rows are laid out many at once, because numpy's cost
is in its calls: at rows of 128 tokens, one at a time is several times slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from xlm.config.phases import Objective

Ids = NDArray[np.int64]
NO_IDS: Ids = np.empty(0, dtype=np.int64)


class PieceIds(Protocol):
    """The ids that laying out and masking rows needs to know; a `Vocabulary` has them."""

    @property
    def size(self) -> int:
        """Number of pieces."""

    @property
    def special_ids(self) -> Sequence[int]:
        """Ids that are no text: never masked, never drawn as a random piece."""

    @property
    def bos_id(self) -> int:
        """Id of ``<s>``."""

    @property
    def eos_id(self) -> int:
        """Id of ``</s>``."""

    @property
    def mask_id(self) -> int:
        """Id of ``<mask>``."""

    @property
    def is_word_start(self) -> NDArray[np.bool_]:
        """Whether each piece begins a word, [size]."""


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Sequences of several rows end to end, with what is to be predicted in them."""

    objective: Objective
    input_ids: Ids  # [T]
    position_ids: Ids  # [T]
    token_type_ids: Ids  # [T]
    language_ids: Ids  # [T]
    sequence_lengths: Ids  # [S]
    sequences_per_row: Ids  # [R]
    predict_positions: Ids  # [P], index into tokens, ascending
    labels: Ids  # [P], original pieces; CLM: the pieces after the positions
    pair_keys: Ids  # [S], -1 except for contrastive sequences
    sequence_labels: Ids  # [S], -1 except for NSP and SOP
    uniforms: NDArray[np.float64] | None = None  # [P] in [0, 1), of RTD rows


def starts_of(lengths: Ids) -> Ids:
    """Return where things of these lengths start when they lie end to end: [n] to [n]."""
    starts: Ids = lengths.cumsum() - lengths
    return starts


def bounds_of(lengths: Ids) -> Ids:
    """Return where things of these lengths start when they lie end to end, and where the last ends: [n] to [n + 1]."""
    bounds = np.zeros(lengths.size + 1, dtype=np.int64)
    lengths.cumsum(out=bounds[1:])
    return bounds


def ranges(starts: Ids, lengths: Ids) -> Ids:
    """Return the indices of ranges, one after the other: [n] starts and lengths to [sum of lengths]."""
    ends: Ids = lengths.cumsum()
    if not ends.size:
        return NO_IDS
    indices: Ids = (starts - (ends - lengths)).repeat(lengths)
    indices += np.arange(int(ends[-1]), dtype=np.int64)
    return indices


def joined(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate arrays, without a copy of a single one; nothing is no ids."""
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else NO_IDS


def positions_within(lengths: Ids) -> Ids:
    """Count from 0 inside each sequence: [S] lengths to [T]."""
    return ranges(np.zeros_like(lengths), lengths)


def sums_by_row(values: Ids, per_row: Ids) -> Ids:
    """Sum ``values`` [S] over the first ``per_row[0]``, the next ``per_row[1]`` and so on: [R]."""
    totals = bounds_of(values)
    ends = per_row.cumsum()
    sums: Ids = totals[ends] - totals[ends - per_row]
    return sums
