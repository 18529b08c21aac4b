"""Translation language modelling (Conneau & Lample 2019): a pair is one sequence, masked on both sides.

Which side comes first is drawn for every pair by the row's seed, so both directions occur. Three forms:

    infoxlm  <s> first </s> second </s>            positions go on, token type 0 (InfoXLM, Chi et al. 2021)
    bert     <s> first </s> second </s>            positions go on, token type 0 up to the first </s>, then 1
    xlm      </s> first </s> </s> second </s>      positions restart at the second half, token type 0

Language ids are those of the sides in every form; only models with language embeddings read them.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from xlm.batching.arrangement import Arrangement
from xlm.batching.keyed_words import DIRECTION, Words, words
from xlm.batching.packed_rows import Ids, PieceIds
from xlm.batching.texts import RowTexts

Form = Literal["infoxlm", "xlm", "bert"]
_HALF = np.uint64(1 << 63)


def pairs_in_one_sequence(texts: RowTexts, seeds: Words, form: Form, pieces: PieceIds) -> Arrangement:
    """Arrange each pair as a sequence of two stretches; ``seeds`` are the rows', [R]."""
    count = texts.items.size
    target_first = coins(seeds, texts.segments_per_row)
    sides = np.empty((count, 2), dtype=np.int64)  # [S, first and second]
    sides[:, 0] = target_first
    sides[:, 1] = ~target_first
    segments = np.arange(count)
    both_opened = form == "xlm"
    return Arrangement(
        texts=(sides * count + segments[:, None]).ravel(),
        opened=alternating(count, True, both_opened).astype(np.bool_),
        opening_id=pieces.eos_id if both_opened else pieces.bos_id,
        stretches_per_sequence=np.full(count, 2, dtype=np.int64),
        sequences_per_row=texts.segments_per_row,
        token_types=alternating(count, 0, 1) if form == "bert" else None,
        positions_restart=both_opened,
    )


def coins(seeds: Words, per_row: Ids) -> NDArray[np.bool_]:
    """Toss ``per_row`` [R] fair coins for each row by its seed: [sum]."""
    tossed: NDArray[np.bool_] = words(seeds, per_row, DIRECTION) >= _HALF
    return tossed


def alternating(count: int, first: int, second: int) -> Ids:
    """Return ``first`` and ``second`` in turn, ``count`` times: [2 x count]."""
    values = np.full((count, 2), first, dtype=np.int64)
    values[:, 1] = second
    return values.ravel()
