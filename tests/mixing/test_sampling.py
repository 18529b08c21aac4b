from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlm.mixing.sampling import in_units, normalised, temperature_shares


# XLM (Conneau & Lample 2019), section 3.1: p = [.9, .09, .01] at the exponents of mBERT, XLM and XLM-R.
@pytest.mark.parametrize(
    ("alpha", "expected"),
    [(0.7, [0.8049, 0.1606, 0.0345]), (0.5, [0.7034, 0.2224, 0.0741]), (0.3, [0.5680, 0.2847, 0.1473])],
)
def test_golden_shares(alpha, expected):
    assert [round(float(share), 4) for share in temperature_shares([9000, 900, 100], alpha)] == expected


@given(sizes=st.lists(st.integers(0, 10**15), min_size=1, max_size=40).filter(any), alpha=st.floats(0, 1))
def test_shares_agree_with_floating_point_and_sum_to_one(sizes, alpha):
    shares = temperature_shares(sizes, alpha)
    powers = np.array([float(size) ** alpha if size else 0.0 for size in sizes])
    np.testing.assert_allclose([float(share) for share in shares], powers / powers.sum(), rtol=1e-9)
    assert sum(shares) == 1


def test_alpha_one_is_exactly_proportional_and_zero_is_equal():
    assert temperature_shares([1, 2, 0, 7], 1.0) == (Fraction(1, 10), Fraction(1, 5), 0, Fraction(7, 10))
    assert temperature_shares([1, 2, 0, 7], 0.0) == (Fraction(1, 3), Fraction(1, 3), 0, Fraction(1, 3))


@pytest.mark.parametrize("bad", [[0, 0], [-1, 2], []])
def test_nothing_to_draw_is_refused(bad):
    with pytest.raises(ValueError, match="negative"):
        temperature_shares(bad, 0.5)
    with pytest.raises(ValueError, match="negative"):
        normalised(bad)


@given(
    weights=st.lists(st.one_of(st.floats(0, 1e9), st.integers(0, 10**12), st.fractions(0, 100)), min_size=1, max_size=60).filter(any),
    units=st.sampled_from([1, 7, 1000, 1 << 60]),
)
def test_units_sum_exactly_and_each_is_within_one(weights, units):
    whole = in_units(weights, units)
    assert sum(whole) == units
    for rounded, share in zip(whole, normalised(weights), strict=True):
        assert abs(rounded - share * units) < 1
        assert share or not rounded
