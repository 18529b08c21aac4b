"""Causal language modelling: every position but the last of a sequence predicts the piece after it; nothing is masked.

Rows are those of running text; attention of the sequences is causal, which is the model's part.
"""

from __future__ import annotations

import numpy as np

from xlm.batching.arrangement import Sequences
from xlm.batching.packed_rows import Ids


def next_pieces(sequences: Sequences) -> tuple[Ids, Ids]:
    """Return the positions [P] that predict, and the pieces that follow them [P]."""
    predicts = np.ones(sequences.ids.size, dtype=np.bool_)
    predicts[np.cumsum(sequences.lengths) - 1] = False
    positions = np.flatnonzero(predicts)
    return positions, sequences.ids[positions + 1]
