from fractions import Fraction

import pytest

from xlm.errors import UserError
from xlm.mixing.leaves import phase_weights, plan_leaves


def weights_by_name(recipe, index, phase=0):
    leaves = plan_leaves(recipe.phases, index)
    weights = phase_weights(recipe.phases[phase], leaves, index)
    return {(leaf.objective, leaf.corpus): weight for leaf, weight in zip(leaves, weights, strict=True)}


def test_leaves_are_the_corpora_of_every_objective(make_recipe, make_index):
    leaves = plan_leaves(make_recipe().phases, make_index())
    pairs = ["de_sw", "en_de", "en_sw"]
    expected = (
        [("contrastive", name) for name in pairs] + [("mlm", name) for name in ("de", "en", "sw")] + [("tlm", name) for name in pairs]
    )
    assert [(leaf.objective, leaf.corpus) for leaf in leaves] == expected
    assert leaves[1].languages == ("en", "de")


def test_objective_shares_times_language_shares(make_recipe, make_index):
    recipe = make_recipe(
        [{"sampling": {"kind": "temperature", "alpha": 1.0}, "objectives": {"mlm": {"share": 0.25}, "tlm": {"share": 0.75}}}]
    )
    weights = weights_by_name(recipe, make_index())
    assert sum(weights.values()) == 1
    assert weights["mlm", "en"] == Fraction(1, 4) * Fraction(9, 10)
    assert weights["tlm", "en_de"] == Fraction(3, 4) * Fraction(60_000, 66_500)


def test_the_unit_decides_the_size(make_recipe, make_index):
    recipe = make_recipe([{"sampling": {"kind": "temperature", "alpha": 1.0, "unit": "rows"}, "objectives": {"mlm": {"share": 1.0}}}])
    rows = {"en": 301 + 302, "de": 57 + 58, "sw": 7 + 8}  # of both variants
    weights = weights_by_name(recipe, make_index())
    assert {corpus: weight for (_, corpus), weight in weights.items()} == {
        name: Fraction(count, sum(rows.values())) for name, count in rows.items()
    }


def test_a_fixed_pair_weight_is_the_product_of_its_languages(make_recipe, make_index):
    sampling = {"kind": "fixed", "weights": {"en": 0.5, "de": 2, "sw": 1}}
    recipe = make_recipe([{"sampling": sampling, "languages": ["en", "de", "sw"], "objectives": {"tlm": {"share": 1.0}}}])
    weights = weights_by_name(recipe, make_index())
    assert weights["tlm", "en_de"] == 2 * weights["tlm", "en_sw"]
    assert weights["tlm", "de_sw"] == 2 * weights["tlm", "en_de"]


def test_a_phase_takes_only_its_languages(make_recipe, make_index):
    recipe = make_recipe([{}, {"languages": ["en", "de"]}])
    weights = weights_by_name(recipe, make_index(), phase=1)
    assert {corpus for (_, corpus), weight in weights.items() if weight} == {"en", "de", "en_de"}
    assert sum(weights.values()) == 1


def test_a_language_the_corpus_lacks_is_named_with_the_available_ones(make_recipe, make_index):
    with pytest.raises(UserError, match=r"'fr'.*de, en, sw"):
        plan_leaves(make_recipe([{"languages": ["en", "fr"]}]).phases, make_index())


def test_a_language_without_a_fixed_weight_is_named(make_recipe, make_index):
    recipe = make_recipe([{"sampling": {"kind": "fixed", "weights": {"en": 1, "de": 1}}}])
    with pytest.raises(UserError, match=r"none for 'sw'.*de, en"):
        weights_by_name(recipe, make_index())


def test_weights_that_leave_nothing_are_refused(make_recipe, make_index):
    recipe = make_recipe([{"sampling": {"kind": "fixed", "weights": {"en": 0, "de": 1, "sw": 0}}}])
    with pytest.raises(UserError, match=r"leave nothing to draw for contrastive"):
        weights_by_name(recipe, make_index())


def test_a_corpus_without_rows_is_not_drawn(make_recipe, make_index):
    index = make_index(rows={"en": 301, "de": 57, "sw": 7, "en_de": 41, "en_sw": 5, "de_sw": 0})
    weights = weights_by_name(make_recipe(), index)
    assert weights["tlm", "de_sw"] == 0
    assert weights["tlm", "en_sw"] > 0
