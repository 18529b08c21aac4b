import numpy as np

from xlm.batching.contrastive import contrastive_rows
from xlm.batching.texts import Texts


def test_the_layout_by_hand(pieces):
    sources = Texts.of([np.array([10, 11], dtype=np.uint16), np.array([12]), np.array([13])])
    targets = Texts.of([np.array([20]), np.array([22, 23]), np.array([24])])
    rows = contrastive_rows(sources, targets, np.array([2, 1]), np.array([[4, 5], [4, 5], [4, 6]]), np.array([77, 78, 77]), pieces=pieces)
    assert rows.input_ids.tolist() == [2, 10, 11, 3, 2, 20, 3, 2, 12, 3, 2, 22, 23, 3, 2, 13, 3, 2, 24, 3]
    assert rows.position_ids.tolist() == [0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 0, 1, 2]
    assert rows.sequence_lengths.tolist() == [4, 3, 3, 4, 3, 3]
    assert rows.sequences_per_row.tolist() == [4, 2]
    assert rows.language_ids.tolist() == [4] * 4 + [5] * 3 + [4] * 3 + [5] * 4 + [4] * 3 + [6] * 3
    assert rows.pair_keys.tolist() == [77, 77, 78, 78, 77, 77]
    assert rows.token_type_ids.tolist() == [0] * 20
    assert rows.labels.size == rows.predict_positions.size == 0
