import numpy as np

from xlm.batching.masking import Masker
from xlm.batching.tlm import tlm_row
from xlm.seeding import keyed_generator


def build(pieces, pairs, key=1, rate=0.5):
    return tlm_row(pairs, (7, 9), pieces=pieces, masker=Masker(pieces), mask_rate=rate, generator=keyed_generator(key))


def original(row):
    ids = row.input_ids.copy()
    ids[row.predict_positions] = row.labels
    return ids.tolist()


def test_the_layout_by_hand_in_both_directions(pieces):
    # InfoXLM's form (Chi et al. 2021): <s> first </s> second </s>, one run of positions.
    pair = (np.array([10, 11], dtype=np.uint16), np.array([20, 21, 22], dtype=np.uint16))
    seen = set()
    for key in range(20):
        row = build(pieces, [pair], key)
        assert row.position_ids.tolist() == list(range(8))
        assert row.sequence_lengths.tolist() == [8]
        assert row.pair_keys.tolist() == [-1]
        if original(row) == [2, 10, 11, 3, 20, 21, 22, 3]:
            assert row.token_type_ids.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
            assert row.language_ids.tolist() == [7, 7, 7, 7, 9, 9, 9, 9]
            seen.add("source first")
        else:
            assert original(row) == [2, 20, 21, 22, 3, 10, 11, 3]
            assert row.token_type_ids.tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
            assert row.language_ids.tolist() == [9, 9, 9, 9, 9, 7, 7, 7]
            seen.add("target first")
    assert seen == {"source first", "target first"}


def test_each_pair_of_a_row_draws_its_own_direction(pieces):
    pairs = [(np.array([10]), np.array([20]))] * 400
    row = build(pieces, pairs)
    first_languages = row.language_ids[::5]
    # Binomial with p = 1/2: five standard deviations of 400 draws.
    assert abs((first_languages == 7).sum() - 200) < 50


def test_masks_fall_on_both_sides(pieces):
    pairs = [(np.arange(10, 30), np.arange(40, 60))] * 4
    row = build(pieces, pairs, rate=0.3)
    assert set(row.token_type_ids[row.predict_positions]) == {0, 1}
    assert row.predict_positions.size == 48  # .3 of 160, one draw over the row
