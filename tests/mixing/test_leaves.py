from fractions import Fraction

import pytest

from xlm.errors import UserError
from xlm.mixing.leaves import drawn_objectives, phase_plans, plan_leaves


def test_leaves_are_the_corpora_of_every_objective(make_recipe, make_index):
    leaves = plan_leaves(make_recipe().phases, make_index())
    pairs = ["de_sw", "en_de", "en_sw"]
    expected = (
        [("contrastive", name) for name in pairs] + [("mlm", name) for name in ("de", "en", "sw")] + [("tlm", name) for name in pairs]
    )
    assert [(leaf.objective, leaf.corpus) for leaf in leaves] == expected
    assert leaves[1].languages == ("en", "de")


def test_an_objective_that_is_never_drawn_has_no_leaves_and_needs_no_plans(make_recipe, make_index):
    recipe = make_recipe(
        [
            {
                "objectives": {
                    "mlm": {"share": {"start": 0.0, "end": 1.0}},
                    "clm": {"share": {"start": 1.0, "end": 0.0}},
                    "tlm": {"share": 0.0},
                }
            }
        ]
    )
    assert drawn_objectives(recipe.phases[0]) == ["mlm", "clm"]
    index = make_index(tokens={"en": 900, "de": 300})
    assert {leaf.objective for leaf in plan_leaves(recipe.phases, index)} == {"mlm", "clm"}


def test_a_phase_takes_only_its_languages_and_the_layouts_it_names(make_recipe, make_index):
    recipe = make_recipe([{}, {"languages": ["en", "de"], "objectives": {"tlm": {"share": 0.5, "form": "xlm"}, "mlm": {"share": 0.5}}}])
    leaves, index = plan_leaves(recipe.phases, make_index()), make_index()
    plans = phase_plans(recipe.phases[1], leaves, index)
    assert [(leaves[leaf].objective, leaves[leaf].corpus) for leaf in sorted(plans.plans)] == [
        ("mlm", "de"),
        ("mlm", "en"),
        ("tlm", "en_de"),
    ]
    assert plans.layouts == {"tlm": "pairs_xlm", "mlm": "documents"}
    (en,) = (leaf for leaf in plans.plans if leaves[leaf].corpus == "en")
    assert (plans.variant_rows(en), plans.epoch_rows(en)) == ((301, 302), Fraction(603, 2))


def test_an_epoch_is_the_mean_of_the_variants(make_recipe, make_index, make_variants):
    index = make_variants(make_index(), sw=(0, 1), en_sw=(2, 20), de_sw=(0, 0))
    recipe = make_recipe()
    leaves = plan_leaves(recipe.phases, index)
    plans = phase_plans(recipe.phases[0], leaves, index)
    rows = {(leaf.objective, leaf.corpus): plans.epoch_rows(number) for number, leaf in enumerate(leaves)}
    assert (rows["mlm", "sw"], rows["tlm", "de_sw"], rows["tlm", "en_sw"]) == (Fraction(1, 2), 0, 11)


def test_a_language_the_corpus_lacks_is_named_with_the_available_ones(make_recipe, make_index):
    with pytest.raises(UserError, match=r"'fr'.*de, en, sw"):
        plan_leaves(make_recipe([{"languages": ["en", "fr"]}]).phases, make_index())


def test_a_plan_that_was_not_built_is_named(make_recipe, make_index):
    recipe = make_recipe([{"sequence_length": 256}])
    with pytest.raises(UserError, match="length 256"):
        phase_plans(recipe.phases[0], plan_leaves(recipe.phases, make_index()), make_index())
