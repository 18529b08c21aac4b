"""Rows to validate on follow from shards, section and languages, never from how a recipe mixes."""

from dataclasses import replace

import pytest

from tests.mixing.conftest import build_index, build_recipe
from xlm.config.training import ValidationSection
from xlm.errors import UserError
from xlm.mixing.data_plan import DataPlan
from xlm.mixing.held_out_rows import HeldOutRows
from xlm.shards.index import PlanEntry

SECTION = ValidationSection(every_steps=10, rows_per_language=8)
HELD_OUT = {"en": 30, "de": 6, "sw": 0, "en_de": 40, "en_sw": 5, "de_sw": 1}


def index_with(held_out, length=64):
    index = build_index()
    plans = dict(index.plans)
    for name, rows in held_out.items():
        layout = "pairs" if "_" in name else "documents"
        plans[name, layout, length, 2] = PlanEntry(name, layout, length, 2, rows, rows, rows * 60, 1.0, ())
    return replace(index, plans=plans, held_out_share=0.1)


def recipe_of(**phase):
    recipe = build_recipe([{"name": "only", "steps": 20, **phase}] if phase else None)
    return recipe.model_copy(update={"shards": recipe.shards.model_copy(update={"held_out_share": 0.1})})


def chosen(rows):
    batch = rows.rows()
    found = {}
    for leaf, row, variant in zip(batch.leaf.tolist(), batch.row.tolist(), batch.variant.tolist(), strict=True):
        assert variant == 2
        found.setdefault((rows.leaves[leaf].objective, rows.leaves[leaf].corpus), []).append(row)
    return found


def test_a_language_has_its_rows_and_many_pair_corpora_share_them():
    found = chosen(HeldOutRows(recipe_of(), SECTION, index_with(HELD_OUT), ("de", "en", "sw")))
    # en_de: both languages have two pair corpora, so each gives half; what is smaller gives all; sw has no documents.
    assert {key: len(rows) for key, rows in found.items()} == {
        ("mlm", "de"): 6,
        ("mlm", "en"): 8,
        ("tlm", "de_sw"): 1,
        ("tlm", "en_de"): 4,
        ("tlm", "en_sw"): 4,
    }
    for (_, corpus), rows in found.items():
        assert rows == sorted(set(rows))
        assert max(rows) < HELD_OUT[corpus]
    assert max(found["mlm", "en"]) > 8  # not the first ones, which come from one source


def test_what_is_validated_on_is_a_sentence_with_the_languages_that_lack_text():
    rows = HeldOutRows(recipe_of(), SECTION, index_with(HELD_OUT), ("de", "en", "sw"))
    assert rows.summary() == "validation on 23 held-out rows of 5 corpora."
    rows = HeldOutRows(recipe_of(), SECTION, index_with({"en": 9}), ("de", "en", "sw"))
    assert "validation on 8 held-out rows of 1 corpora; none has text in de, sw (a larger" in rows.summary()


def test_the_mixing_of_a_recipe_changes_nothing_and_the_seed_does():
    index, languages = index_with(HELD_OUT), ("de", "en", "sw")
    one = HeldOutRows(recipe_of(), SECTION, index, languages)
    sampling = {"kind": "fixed", "weights": {"de": 1.0, "en": 0.0}}
    other_mixing = recipe_of(sequence_length=128, sampling=sampling, objectives={"mlm": {"share": 1.0}}, mask_rate=0.4)
    other = HeldOutRows(other_mixing, SECTION, index, languages)
    assert chosen(one) == chosen(other)
    assert one.recipe.phases == other.recipe.phases
    assert chosen(one) != chosen(HeldOutRows(recipe_of(), SECTION.model_copy(update={"seed": 1}), index, languages))


def test_languages_that_the_run_lacks_are_left_out_and_change_no_other():
    index = index_with(HELD_OUT)
    every = chosen(HeldOutRows(recipe_of(), SECTION, index, ("de", "en", "sw")))
    two = chosen(HeldOutRows(recipe_of(), SECTION, index, ("de", "en")))
    assert two == {key: rows for key, rows in every.items() if "sw" not in key[1]}


def test_training_draws_none_of_them():
    index = index_with(HELD_OUT)
    with_plans, without = DataPlan(recipe_of(), index), DataPlan(recipe_of(), build_index())
    assert with_plans.planned() == without.planned()
    assert all((with_plans.rows(step).variant < 2).all() for step in range(0, 200, 20))


def test_nothing_set_aside_and_another_share_are_told():
    with pytest.raises(UserError, match=r"nothing to validate on: of the languages of this run"):
        HeldOutRows(recipe_of(), SECTION, index_with({"en": 0, "de": 3}), ("en",))
    with pytest.raises(UserError, match=r"held_out_share is 0.1, but of these shards 0 is set aside"):
        HeldOutRows(recipe_of(), SECTION, build_index(), ("en",))
