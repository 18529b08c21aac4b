import numpy as np

from xlm.batching.masking import Masker
from xlm.batching.mlm import mlm_rows
from xlm.batching.texts import Texts
from xlm.seeding import key_digest


def test_the_layout_by_hand(pieces):
    segments = Texts.of([np.array(ids, dtype=np.uint16) for ids in ([10, 11, 12], [20], [30, 31])])
    rows = mlm_rows(
        segments,
        np.array([2, 1]),
        np.array([3, 3, 5]),
        pieces=pieces,
        masker=Masker(pieces),
        mask_rate=0.5,
        keys=[key_digest(1), key_digest(2)],
    )
    original = rows.input_ids.copy()
    original[rows.predict_positions] = rows.labels
    assert original.tolist() == [2, 10, 11, 12, 3, 2, 20, 3, 2, 30, 31, 3]
    assert rows.position_ids.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3]
    assert rows.token_type_ids.tolist() == [0] * 12
    assert rows.language_ids.tolist() == [3] * 8 + [5] * 4
    assert rows.sequence_lengths.tolist() == [5, 3, 4]
    assert rows.sequences_per_row.tolist() == [2, 1]
    assert rows.pair_keys.tolist() == [-1, -1, -1]
    assert (rows.predict_positions < 8).sum() == 2  # half of the four pieces of the first row
    assert (rows.predict_positions >= 8).sum() == 1
    assert rows.input_ids.dtype == np.int64


def test_a_row_of_unknown_pieces_predicts_nothing(pieces):
    rows = mlm_rows(
        Texts.of([np.array([1, 1], dtype=np.uint16)]),
        np.array([1]),
        np.array([0]),
        pieces=pieces,
        masker=Masker(pieces),
        mask_rate=0.5,
        keys=[key_digest(1)],
    )
    assert rows.input_ids.tolist() == [2, 1, 1, 3]
    assert rows.labels.size == 0
