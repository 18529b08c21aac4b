import numpy as np

from xlm.batching.arrangement import lay_out
from xlm.batching.contrastive import pair_key_id, pair_key_ids, separate_pairs
from xlm.batching.texts import RowTexts


def test_the_layout_by_hand(pieces):
    sources = [np.array([10, 11], dtype=np.uint16), np.array([12], dtype=np.uint16), np.array([13], dtype=np.uint16)]
    targets = [np.array([20], dtype=np.uint16), np.array([22, 23], dtype=np.uint16), np.array([24], dtype=np.uint16)]
    texts = RowTexts.of([sources, targets], [4, 5], [2, 1])
    arrangement = separate_pairs(texts, pieces)
    laid = lay_out(arrangement, texts, eos_id=3)
    assert laid.ids.tolist() == [2, 10, 11, 3, 2, 20, 3, 2, 12, 3, 2, 22, 23, 3, 2, 13, 3, 2, 24, 3]
    assert laid.positions.tolist() == [0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 0, 1, 2]
    assert laid.lengths.tolist() == [4, 3, 3, 4, 3, 3]
    assert arrangement.sequences_per_row.tolist() == [4, 2]
    assert laid.languages.tolist() == [4] * 4 + [5] * 3 + [4] * 3 + [5] * 4 + [4] * 3 + [5] * 3
    assert laid.token_types.tolist() == [0] * 20


def test_keys_of_pairs_are_numbers_that_tell_them_apart():
    keys = {pair_key_id(f"key{number}") for number in range(10_000)}
    assert len(keys) == 10_000
    assert min(keys) >= 0
    assert max(keys) < 2**63
    first, second = pair_key_id("a"), pair_key_id("b")
    assert pair_key_ids(["a", "b"]).tolist() == [first, first, second, second]
