"""Translation language modelling (Conneau & Lample 2019): a pair is one sequence, masked on both sides.

The form is InfoXLM's (Chi et al. 2021): ``<s> first </s> second </s>``, positions not restarted. Which side
comes first is drawn for every pair, so both directions occur; the token type is 0 on the first side (with
``<s>`` and the ``</s>`` after it) and 1 on the second, as BERT counts them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlm.batching.masking import Masker
from xlm.batching.row_tokens import Ids, PieceIds, Pieces, RowTokens, positions_within

_TOP_BIT = np.uint64(63)


def tlm_row(
    pairs: Sequence[tuple[Pieces, Pieces]],
    language_ids: tuple[int, int],
    *,
    pieces: PieceIds,
    masker: Masker,
    mask_rate: float,
    generator: np.random.Generator,
) -> RowTokens:
    """Lay out ``pairs`` (source and target, each [tokens]) of two languages and mask them in one draw over the row."""
    begin, end = (np.array([special], dtype=np.int64) for special in (pieces.bos_id, pieces.eos_id))
    target_first = (generator.bit_generator.random_raw(len(pairs)) >> _TOP_BIT).tolist()
    parts: list[Pieces] = []
    side_lengths: list[int] = []  # [2 S]
    side_languages: list[int] = []  # [2 S]
    for pair, flipped in zip(pairs, target_first, strict=True):
        first, second = pair[flipped], pair[1 - flipped]
        parts += (begin, first, end, second, end)
        side_lengths += (len(first) + 2, len(second) + 1)
        side_languages += (language_ids[flipped], language_ids[1 - flipped])
    ids: Ids = np.concatenate(parts, dtype=np.int64)
    sides = np.array(side_lengths, dtype=np.int64)
    lengths: Ids = sides.reshape(-1, 2).sum(axis=1)
    masked = masker.mask(ids, mask_rate, generator)
    return RowTokens(
        objective="tlm",
        input_ids=masked.input_ids,
        position_ids=positions_within(lengths),
        token_type_ids=np.repeat(np.tile(np.array([0, 1], dtype=np.int64), len(pairs)), sides),
        language_ids=np.repeat(np.array(side_languages, dtype=np.int64), sides),
        sequence_lengths=lengths,
        predict_positions=masked.positions,
        labels=masked.labels,
        pair_keys=np.full(lengths.size, -1, dtype=np.int64),
    )
