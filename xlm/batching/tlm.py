"""Translation language modelling (Conneau & Lample 2019): a pair is one sequence, masked on both sides.

The form is InfoXLM's (Chi et al. 2021): ``<s> first </s> second </s>``, positions not restarted. Which side
comes first is drawn for every pair, so both directions occur; the token type is 0 on the first side (with
``<s>`` and the ``</s>`` after it) and 1 on the second, as BERT counts them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlm.batching.keyed_words import KeyedWords
from xlm.batching.masking import Masker
from xlm.batching.packed_rows import Ids, PackedRows, PieceIds, positions_within, starts_of, sums_by_row
from xlm.batching.texts import Texts

_HALF = np.uint64(1 << 63)
_DIRECTION_STREAM = 1  # of a row's key; masks come from stream 0


def tlm_rows(
    sources: Texts,
    targets: Texts,
    pairs_per_row: Ids,
    languages: Ids,
    *,
    pieces: PieceIds,
    masker: Masker,
    mask_rate: float,
    keys: Sequence[bytes],
) -> PackedRows:
    """Lay out rows of pairs, and mask each row in one draw over both sides by its key [R].

    ``sources`` and ``targets`` are [S] texts, ``languages`` the ids of both sides, [S, 2].
    """
    source = KeyedWords()
    counts = pairs_per_row.tolist()
    words = [source.draw(key, count, stream=_DIRECTION_STREAM) for key, count in zip(keys, counts, strict=True)]
    target_first = np.concatenate(words) >= _HALF
    first_lengths = np.where(target_first, targets.lengths, sources.lengths)
    lengths = sources.lengths + targets.lengths + 3
    starts = starts_of(lengths)
    middles = starts + first_lengths + 1  # of the </s> between the sides
    ids = np.empty(int(lengths.sum()), dtype=np.int64)
    ids[starts] = pieces.bos_id
    ids[middles] = pieces.eos_id
    ids[starts + lengths - 1] = pieces.eos_id
    sources.copy_to(ids, np.where(target_first, middles, starts) + 1)
    targets.copy_to(ids, np.where(target_first, starts, middles) + 1)
    masked = masker.mask(ids, sums_by_row(lengths, pairs_per_row), mask_rate, keys)
    # [2 S]: first side and second side of every pair in turn.
    side_lengths = np.stack([first_lengths + 2, lengths - first_lengths - 2], axis=1).ravel()
    side_types = np.zeros((lengths.size, 2), dtype=np.int64)
    side_types[:, 1] = 1
    side_languages = np.where(target_first[:, None], languages[:, ::-1], languages)
    return PackedRows(
        objective="tlm",
        input_ids=masked.input_ids,
        position_ids=positions_within(lengths),
        token_type_ids=np.repeat(side_types.ravel(), side_lengths),
        language_ids=np.repeat(side_languages.ravel(), side_lengths),
        sequence_lengths=lengths,
        sequences_per_row=pairs_per_row,
        predict_positions=masked.positions,
        labels=masked.labels,
        pair_keys=np.full_like(lengths, -1),
    )
