import numpy as np

from xlm.batching.contrastive import contrastive_row


def test_the_layout_by_hand(pieces):
    pairs = [(np.array([10, 11], dtype=np.uint16), np.array([20], dtype=np.uint16)), (np.array([12]), np.array([22, 23]))]
    row = contrastive_row(pairs, [77, 78], (4, 5), pieces=pieces)
    assert row.input_ids.tolist() == [2, 10, 11, 3, 2, 20, 3, 2, 12, 3, 2, 22, 23, 3]
    assert row.position_ids.tolist() == [0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 0, 1, 2, 3]
    assert row.sequence_lengths.tolist() == [4, 3, 3, 4]
    assert row.language_ids.tolist() == [4] * 4 + [5] * 3 + [4] * 3 + [5] * 4
    assert row.pair_keys.tolist() == [77, 77, 78, 78]
    assert row.token_type_ids.tolist() == [0] * 14
    assert row.labels.size == row.predict_positions.size == 0
