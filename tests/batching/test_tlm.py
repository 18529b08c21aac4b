import numpy as np
import pytest

from xlm.batching.arrangement import lay_out
from xlm.batching.texts import RowTexts
from xlm.batching.tlm import pairs_in_one_sequence

# By form, source first and target first: ids, positions, token types.
LAYOUTS = {
    # InfoXLM (Chi et al. 2021): <s> s </s> t </s>, one run of positions.
    "infoxlm": (
        ([2, 10, 11, 3, 20, 21, 22, 3], list(range(8)), [0] * 8),
        ([2, 20, 21, 22, 3, 10, 11, 3], list(range(8)), [0] * 8),
    ),
    # BERT (Devlin et al. 2019): [CLS] and the first [SEP] go with the first side.
    "bert": (
        ([2, 10, 11, 3, 20, 21, 22, 3], list(range(8)), [0, 0, 0, 0, 1, 1, 1, 1]),
        ([2, 20, 21, 22, 3, 10, 11, 3], list(range(8)), [0, 0, 0, 0, 0, 1, 1, 1]),
    ),
    # XLM (Conneau & Lample 2019): </s> s </s> </s> t </s>, positions restart.
    "xlm": (
        ([3, 10, 11, 3, 3, 20, 21, 22, 3], [0, 1, 2, 3, 0, 1, 2, 3, 4], [0] * 9),
        ([3, 20, 21, 22, 3, 3, 10, 11, 3], [0, 1, 2, 3, 4, 0, 1, 2, 3], [0] * 9),
    ),
}


@pytest.mark.parametrize("form", LAYOUTS)
def test_the_layout_by_hand_in_both_directions(pieces, form):
    texts = RowTexts.of([[np.array([10, 11])], [np.array([20, 21, 22])]], [7, 9], [1])
    seen = set()
    for seed in range(20):
        arrangement = pairs_in_one_sequence(texts, np.array([seed], dtype=np.uint64), form, pieces)
        laid = lay_out(arrangement, texts, eos_id=3)
        direction = int(laid.ids[1] == 20)
        ids, positions, types = LAYOUTS[form][direction]
        assert laid.ids.tolist() == ids
        assert laid.positions.tolist() == positions
        assert laid.token_types.tolist() == types
        first = 4 + direction
        sides = (9, 7) if direction else (7, 9)
        assert laid.languages.tolist() == [sides[0]] * first + [sides[1]] * (len(ids) - first)
        assert laid.lengths.tolist() == [len(ids)]
        seen.add(direction)
    assert seen == {0, 1}


def test_each_pair_of_a_row_draws_its_own_direction(pieces):
    texts = RowTexts.of([[np.array([10])] * 400, [np.array([20])] * 400], [7, 9], [400])
    laid = lay_out(pairs_in_one_sequence(texts, np.array([5], dtype=np.uint64), "infoxlm", pieces), texts, eos_id=3)
    # Binomial with p = 1/2: five standard deviations of 400 draws.
    assert abs((laid.languages[::5] == 7).sum() - 200) < 50
