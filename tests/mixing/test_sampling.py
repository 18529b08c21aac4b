from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlm.mixing.sampling import unimax_shares


# UniMax (Chung et al. 2023): sizes, budget, epochs -> shares.
@pytest.mark.parametrize(
    ("sizes", "budget", "epochs", "expected"),
    [
        ([100, 200, 300, 400, 500], 1000, 1, [0.1, 0.2, 0.2333, 0.2333, 0.2333]),
        ([1, 10, 100, 1000], 500, 4, [0.008, 0.08, 0.456, 0.456]),
    ],
)
def test_golden_shares(sizes, budget, epochs, expected):
    shares = unimax_shares([epochs * size for size in sizes], budget)
    assert [round(float(share), 4) for share in shares] == expected


@given(capacities=st.lists(st.integers(0, 10**12), min_size=1, max_size=40).filter(any), part=st.fractions(Fraction(1, 1000), 1))
def test_nobody_gives_more_than_it_has_and_only_the_exhausted_give_less_than_others(capacities, part):
    budget = part * sum(capacities)
    shares = unimax_shares(capacities, budget)
    assert sum(shares) == 1
    most = max(shares)
    for capacity, share in zip(capacities, shares, strict=True):
        assert share * budget <= capacity
        assert share == most or share * budget == capacity


def test_the_order_of_the_corpora_does_not_matter():
    assert unimax_shares([400, 4, 4000, 40], 500) == tuple(unimax_shares([4, 40, 400, 4000], 500)[place] for place in (2, 0, 3, 1))


def test_an_empty_corpus_gives_nothing_and_everything_can_be_drawn():
    assert unimax_shares([0, 30, 10], 40) == (0, Fraction(3, 4), Fraction(1, 4))


def test_a_budget_above_everything_names_the_largest_possible():
    with pytest.raises(ValueError, match="largest possible is 1,500"):
        unimax_shares([500, 1000], 1501)
    with pytest.raises(ValueError, match="positive"):
        unimax_shares([500], 0)
    with pytest.raises(ValueError, match="negative"):
        unimax_shares([-1, 500], 10)
