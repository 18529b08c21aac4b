"""One row, ready to be fed: sequences end to end, before rows are joined to a batch. No torch here.

Shapes: T tokens, S sequences, P predictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from xlm.config.recipe import Objective

Ids = NDArray[np.int64]
Pieces = NDArray[Any]  # ids in whatever integer type the shards keep them

NO_PREDICTIONS: Ids = np.empty(0, dtype=np.int64)


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


@dataclass(frozen=True, slots=True)
class RowTokens:
    """A row's sequences laid end to end, with what is to be predicted in them."""

    objective: Objective
    input_ids: Ids  # [T]
    position_ids: Ids  # [T], from 0 in every sequence
    token_type_ids: Ids  # [T]
    language_ids: Ids  # [T]
    sequence_lengths: Ids  # [S]
    predict_positions: Ids  # [P], index into the row's tokens, ascending
    labels: Ids  # [P], original pieces
    pair_keys: Ids  # [S], -1 except for contrastive sequences


def positions_within(sequence_lengths: Ids) -> Ids:
    """Count from 0 inside each sequence: [S] to [T]."""
    starts = np.cumsum(sequence_lengths) - sequence_lengths
    return np.arange(int(sequence_lengths.sum()), dtype=np.int64) - np.repeat(starts, sequence_lengths)
