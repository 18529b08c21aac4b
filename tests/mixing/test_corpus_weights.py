from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlm.errors import UserError
from xlm.mixing.corpus_weights import power, weights_in_phase
from xlm.mixing.leaves import phase_plans, plan_leaves


def shares_of(recipe, index, objective, fraction=0.0):
    """Return by corpus the share that it has of its objective in the first phase."""
    leaves, phase = plan_leaves(recipe.phases, index), recipe.phases[0]
    weights = weights_in_phase(phase, objective, leaves, phase_plans(phase, leaves, index), index)(fraction)
    total = sum(weights.values())
    return {leaves[leaf].corpus: Fraction(weight) / total for leaf, weight in weights.items()}


def sampled(make_recipe, **sampling):
    return make_recipe([{"sampling": sampling}])


def test_proportional_is_by_size_exactly(make_recipe, make_index):
    for sampling in ({"kind": "proportional"}, {"kind": "temperature", "alpha": 1.0}):
        recipe = make_recipe([{"sampling": sampling}])
        assert shares_of(recipe, make_index(), "mlm") == {"en": Fraction(9, 10), "de": Fraction(9, 100), "sw": Fraction(1, 100)}
        assert shares_of(recipe, make_index(), "tlm")["en_de"] == Fraction(60_000, 66_500)


@pytest.mark.parametrize(
    ("unit", "sizes"),
    [
        ("rows", {"en": 301 + 302, "de": 57 + 58, "sw": 7 + 8}),  # of both variants
        ("sentences", {"en": 30_000, "de": 5_000, "sw": 1_000}),
        ("tokens", {"en": 900_000, "de": 90_000, "sw": 10_000}),
    ],
)
def test_the_unit_decides_the_size(make_recipe, make_index, unit, sizes):
    recipe = sampled(make_recipe, kind="proportional", unit=unit)
    assert shares_of(recipe, make_index(), "mlm") == {name: Fraction(size, sum(sizes.values())) for name, size in sizes.items()}


def test_temperature_takes_the_power_of_sizes(make_recipe, make_index):
    found = shares_of(sampled(make_recipe, kind="temperature", alpha=0.5), make_index(), "mlm")
    roots = {"en": 900_000**0.5, "de": 90_000**0.5, "sw": 10_000**0.5}
    assert {name: float(share) for name, share in found.items()} == pytest.approx(
        {name: root / sum(roots.values()) for name, root in roots.items()}
    )
    equal = shares_of(sampled(make_recipe, kind="temperature", alpha=0.0), make_index(), "mlm")
    assert set(equal.values()) == {Fraction(1, 3)}


@pytest.mark.parametrize(
    ("alpha", "golden"),
    [(0.7, [0.8049, 0.1606, 0.0345]), (0.5, [0.7034, 0.2224, 0.0741]), (0.3, [0.5680, 0.2847, 0.1473])],
)
def test_published_exponents_give_their_published_shares(make_recipe, make_index, alpha, golden):
    # p = [.9, .09, .01]; alpha .7: mBERT and XLM's XNLI runs, .5: XLM, .3: XLM-R (Conneau & Lample 2019, section 3.1).
    found = shares_of(sampled(make_recipe, kind="temperature", alpha=alpha), make_index(), "mlm")
    assert [float(found[name]) for name in ("en", "de", "sw")] == pytest.approx(golden, abs=5e-5)


def test_a_ramp_moves_alpha(make_recipe, make_index):
    recipe = sampled(make_recipe, kind="temperature", alpha={"start": 0.75, "end": 0.25})
    for fraction, alpha in ((0.0, 0.75), (0.5, 0.5), (1.0, 0.25)):
        assert shares_of(recipe, make_index(), "mlm", fraction) == shares_of(
            sampled(make_recipe, kind="temperature", alpha=alpha), make_index(), "mlm"
        )


@given(size=st.integers(1, 10**13), exponent=st.floats(0.0, 1.0))
def test_a_power_is_near_the_float_power(size, exponent):
    assert power(size, exponent) / 10**18 == pytest.approx(size**exponent, rel=1e-12)


def test_a_fixed_pair_weight_is_the_product_of_its_languages(make_recipe, make_index):
    recipe = sampled(make_recipe, kind="fixed", weights={"en": 0.5, "de": 2, "sw": 1})
    shares = shares_of(recipe, make_index(), "tlm")
    assert shares["en_de"] == 2 * shares["en_sw"]
    assert shares["de_sw"] == 2 * shares["en_de"]
    # Written decimals are meant as they stand.
    thirds = shares_of(sampled(make_recipe, kind="fixed", weights={"en": 0.1, "de": 0.2, "sw": 0}), make_index(), "mlm")
    assert thirds == {"en": Fraction(1, 3), "de": Fraction(2, 3)}


def test_a_language_without_a_fixed_weight_is_named(make_recipe, make_index):
    with pytest.raises(UserError, match=r"none for 'sw'.*de, en"):
        shares_of(sampled(make_recipe, kind="fixed", weights={"en": 1, "de": 1}), make_index(), "mlm")


def test_weights_that_leave_nothing_are_refused(make_recipe, make_index):
    with pytest.raises(UserError, match=r"leave nothing to draw for contrastive"):
        shares_of(sampled(make_recipe, kind="fixed", weights={"en": 0, "de": 1, "sw": 0}), make_index(), "contrastive")


def test_a_corpus_without_rows_is_not_drawn(make_recipe, make_index):
    index = make_index(rows={"en": 301, "de": 57, "sw": 7, "en_de": 41, "en_sw": 5, "de_sw": 0})
    assert set(shares_of(make_recipe(), index, "tlm")) == {"en_de", "en_sw"}
    with pytest.raises(UserError, match=r"'de_sw'.*none fits at sequence_length 64"):
        shares_of(sampled(make_recipe, kind="fixed", weights={"en": 1, "de": 1, "sw": 1}), index, "tlm")


def test_corpora_that_are_all_empty_are_named(make_recipe, make_index):
    index = make_index(tokens=dict.fromkeys(("en", "de", "sw", "en_de", "en_sw", "de_sw"), 0))
    with pytest.raises(UserError, match=r"corpora of mlm are all empty \(de, en, sw\)"):
        shares_of(make_recipe(), index, "mlm")
