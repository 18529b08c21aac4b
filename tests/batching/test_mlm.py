import numpy as np

from xlm.batching.masking import Masker
from xlm.batching.mlm import mlm_row
from xlm.seeding import keyed_generator


def test_the_layout_by_hand(pieces):
    segments = [np.array([10, 11, 12], dtype=np.uint16), np.array([20], dtype=np.uint16)]
    row = mlm_row(segments, 3, pieces=pieces, masker=Masker(pieces), mask_rate=0.5, generator=keyed_generator(1))
    original = row.input_ids.copy()
    original[row.predict_positions] = row.labels
    assert original.tolist() == [2, 10, 11, 12, 3, 2, 20, 3]
    assert row.position_ids.tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert row.token_type_ids.tolist() == [0] * 8
    assert row.language_ids.tolist() == [3] * 8
    assert row.sequence_lengths.tolist() == [5, 3]
    assert row.pair_keys.tolist() == [-1, -1]
    assert row.predict_positions.size == 2
    assert row.input_ids.dtype == np.int64


def test_a_row_of_unknown_pieces_predicts_nothing(pieces):
    row = mlm_row([np.array([1, 1], dtype=np.uint16)], 0, pieces=pieces, masker=Masker(pieces), mask_rate=0.5, generator=keyed_generator(1))
    assert row.input_ids.tolist() == [2, 1, 1, 3]
    assert row.labels.size == 0
