import numpy as np

from xlm.batching import contrastive
from xlm.batching.arrangement import Arrangement, lay_out
from xlm.batching.contrastive import pair_key_id, pair_keys, separate_pairs
from xlm.batching.texts import RowTexts

SEEDS = np.array([7, 8], dtype=np.uint64)


def test_the_layout_by_hand(pieces):
    sources = [np.array([10, 11], dtype=np.uint16), np.array([12], dtype=np.uint16), np.array([13], dtype=np.uint16)]
    targets = [np.array([20], dtype=np.uint16), np.array([22, 23], dtype=np.uint16), np.array([24], dtype=np.uint16)]
    texts = RowTexts.of([sources, targets], [4, 5], [2, 1])
    arrangement = separate_pairs(texts, SEEDS, 0.0, pieces)
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
    assert pair_keys(["a", "b"], some_arrangement([1, 1, 1, 1], [0, 2, 1, 3])).tolist() == [first, first, second, second]


def some_arrangement(stretches, texts):
    stretches, texts = (np.array(values, dtype=np.int64) for values in (stretches, texts))
    return Arrangement(texts, np.ones(texts.size, dtype=np.bool_), 2, stretches, np.array([stretches.size]))


def test_joined_pairs_have_a_key_of_both_in_any_order():
    keys = ["a", "b", "c"]
    forth = pair_keys(keys, some_arrangement([2, 2, 1, 1], [0, 1, 3, 4, 2, 5])).tolist()
    back = pair_keys(keys, some_arrangement([2, 2, 1, 1], [1, 0, 4, 3, 2, 5])).tolist()
    other = pair_keys(keys, some_arrangement([2, 2], [0, 2, 3, 5])).tolist()
    assert forth == back
    assert forth[0] == forth[1] >= 0
    assert forth[2:] == [pair_key_id("c")] * 2
    assert len({forth[0], other[0], *map(pair_key_id, keys)}) == 5


def test_joined_pairs_by_hand(pieces, monkeypatch):
    monkeypatch.setattr(contrastive, "units", lambda seeds, per_row, p: (np.array([[1, 0], [2, -1], [3, 4]]), np.array([2, 1])))
    sides = [[np.array([side + number] * 2, dtype=np.uint16) for number in range(5)] for side in (10, 20)]
    texts = RowTexts.of(sides, [4, 5], [3, 2])
    arrangement = separate_pairs(texts, SEEDS, 0.5, pieces)
    laid = lay_out(arrangement, texts, eos_id=3)
    assert np.split(laid.ids, laid.lengths.cumsum()[:-1])[0].tolist() == [2, 11, 11, 10, 10, 3]
    assert laid.ids.tolist() == [
        *(2, 11, 11, 10, 10, 3, 2, 21, 21, 20, 20, 3),
        *(2, 12, 12, 3, 2, 22, 22, 3),
        *(2, 13, 13, 14, 14, 3, 2, 23, 23, 24, 24, 3),
    ]
    assert laid.positions.tolist() == [0, 1, 2, 3, 4, 5] * 2 + [0, 1, 2, 3] * 2 + [0, 1, 2, 3, 4, 5] * 2
    assert laid.languages.tolist() == [4] * 6 + [5] * 6 + [4] * 4 + [5] * 4 + [4] * 6 + [5] * 6
    assert arrangement.sequences_per_row.tolist() == [4, 2]
