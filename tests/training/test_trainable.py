import pytest
from made_up_run import RECIPE

from xlm.config.recipe import Recipe
from xlm.errors import UserError
from xlm.training.trainable import check_trainable

GENERATOR = {"width": 8, "layers": 1, "heads": 2, "feed_forward": 16}
SENTENCES = {"sentence_head": True, "token_types": 2}
RTD = {"discriminator_head": True, "generator": GENERATOR}


def recipe_of(objectives, **model):
    phases = [RECIPE["phases"][0], {**RECIPE["phases"][1], "objectives": objectives}]
    return Recipe.model_validate({**RECIPE, "phases": phases, "model": {**RECIPE["model"], **model}})


@pytest.mark.parametrize(("name", "model"), [("clm", {}), ("nsp", SENTENCES), ("sop", SENTENCES), ("rtd", RTD)])
def test_every_objective_can_be_trained_by_a_model_with_its_heads(name, model):
    check_trainable(recipe_of({"mlm": {"share": 0.5}, name: {"share": 0.5}}, **model))


@pytest.mark.parametrize(
    ("name", "model", "part"),
    [
        ("nsp", {"token_types": 2}, "sentence_head"),
        ("sop", {"token_types": 2}, "sentence_head"),
        ("rtd", {}, "generator"),
        ("rtd", {"discriminator_head": True}, "generator"),
    ],
)
def test_a_head_that_an_objective_needs_is_named_with_its_phase(name, model, part):
    with pytest.raises(UserError, match=rf"phase 'long' has {name}, which needs model\.{part}; .* or take {name} out"):
        check_trainable(recipe_of({"mlm": {"share": 0.5}, name: {"share": {"start": 0.5, "end": 0.5}}}, **model))
    with pytest.raises(UserError, match=r"phase 'short' has mlm, which needs model\.language_model_head"):
        check_trainable(recipe_of({"mlm": {"share": 1.0}}, language_model_head=False))
    check_trainable(recipe_of({"mlm": {"share": 1.0}, name: {"share": 0.0}}))


@pytest.mark.parametrize(
    ("model", "part"),
    [(SENTENCES, "sentence_head is set, but no phase draws nsp or sop"), (RTD, "generator is set, but no phase draws rtd")],
)
def test_a_head_that_nothing_trains_is_named(model, part):
    with pytest.raises(UserError, match=rf"model\.{part}, so nothing would train it; set it to"):
        check_trainable(recipe_of({"mlm": {"share": 1.0}}, **model))


def test_a_model_that_only_aligns_has_no_language_model_head():
    phases = [{**phase, "objectives": {"contrastive": {"share": 1.0}}} for phase in RECIPE["phases"]]
    with pytest.raises(UserError, match=r"model\.language_model_head is set, but no phase draws mlm or tlm or clm"):
        check_trainable(Recipe.model_validate({**RECIPE, "phases": phases}))
    check_trainable(Recipe.model_validate({**RECIPE, "phases": phases, "model": {**RECIPE["model"], "language_model_head": False}}))


@pytest.mark.parametrize("options", [{"momentum": 0.99}, {"queue_pairs": 1000}, {"temperature": 0.1}, {"layer": 1}])
def test_options_of_pairs_that_no_phase_draws_are_named(options):
    (name,) = options
    training = {**RECIPE["training"], "contrastive": options}
    alone = [{**phase, "objectives": {"mlm": {"share": 1.0}, "contrastive": {"share": 0.0}}} for phase in RECIPE["phases"]]
    with pytest.raises(UserError, match=rf"training\.contrastive\.{name} is .*, but no phase draws contrastive, so it does nothing"):
        check_trainable(Recipe.model_validate({**RECIPE, "phases": alone, "training": training}))
    check_trainable(Recipe.model_validate({**RECIPE, "training": training}))
    check_trainable(Recipe.model_validate({**RECIPE, "phases": alone, "training": {**training, "contrastive": {"temperature": 0.05}}}))


def test_sides_told_apart_by_token_types_need_two_of_them():
    for count in (0, 1):
        with pytest.raises(UserError, match=f"model.token_types is {count}; set it to 2, or use the form infoxlm"):
            check_trainable(recipe_of({"tlm": {"share": 1.0, "form": "bert"}}, token_types=count))
        with pytest.raises(UserError, match=f"'long' has sop, .* model.token_types is {count}; set it to 2"):
            check_trainable(recipe_of({"sop": {"share": 1.0}}, sentence_head=True, token_types=count))
    check_trainable(recipe_of({"tlm": {"share": 1.0, "form": "bert"}}, token_types=2))
    check_trainable(recipe_of({"tlm": {"share": 1.0, "form": "xlm"}}))
