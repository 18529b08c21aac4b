import numpy as np

from xlm.batching.masking import Masker
from xlm.batching.texts import Texts
from xlm.batching.tlm import tlm_rows
from xlm.seeding import key_digest


def build(pieces, pairs, key=1, rate=0.5):
    sources, targets = (Texts.of([np.array(side, dtype=np.uint16) for side in of_side]) for of_side in zip(*pairs, strict=True))
    return tlm_rows(
        sources,
        targets,
        np.array([len(pairs)]),
        np.tile([[7, 9]], (len(pairs), 1)),
        pieces=pieces,
        masker=Masker(pieces),
        mask_rate=rate,
        keys=[key_digest(key)],
    )


def original(rows):
    ids = rows.input_ids.copy()
    ids[rows.predict_positions] = rows.labels
    return ids.tolist()


def test_the_layout_by_hand_in_both_directions(pieces):
    # InfoXLM's form (Chi et al. 2021): <s> first </s> second </s>, one run of positions.
    seen = set()
    for key in range(20):
        rows = build(pieces, [([10, 11], [20, 21, 22])], key)
        assert rows.position_ids.tolist() == list(range(8))
        assert rows.sequence_lengths.tolist() == [8]
        assert rows.pair_keys.tolist() == [-1]
        if original(rows) == [2, 10, 11, 3, 20, 21, 22, 3]:
            assert rows.token_type_ids.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
            assert rows.language_ids.tolist() == [7, 7, 7, 7, 9, 9, 9, 9]
            seen.add("source first")
        else:
            assert original(rows) == [2, 20, 21, 22, 3, 10, 11, 3]
            assert rows.token_type_ids.tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
            assert rows.language_ids.tolist() == [9, 9, 9, 9, 9, 7, 7, 7]
            seen.add("target first")
    assert seen == {"source first", "target first"}


def test_each_pair_of_a_row_draws_its_own_direction(pieces):
    rows = build(pieces, [([10], [20])] * 400)
    first_languages = rows.language_ids[::5]
    # Binomial with p = 1/2: five standard deviations of 400 draws.
    assert abs((first_languages == 7).sum() - 200) < 50


def test_masks_fall_on_both_sides(pieces):
    rows = build(pieces, [(range(10, 30), range(40, 60))] * 4, rate=0.3)
    assert set(rows.token_type_ids[rows.predict_positions]) == {0, 1}
    assert rows.predict_positions.size == 48  # .3 of 160, one draw over the row
