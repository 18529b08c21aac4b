import pytest
from made_up_run import RECIPE

from xlm.config.recipe import Recipe
from xlm.errors import NotSupportedYetError, UserError
from xlm.training.trainable import check_trainable


def recipe_of(objectives, **model):
    phases = [RECIPE["phases"][0], {**RECIPE["phases"][1], "objectives": objectives}]
    return Recipe.model_validate({**RECIPE, "phases": phases, "model": {**RECIPE["model"], **model}})


@pytest.mark.parametrize("name", ["clm", "nsp", "sop", "rtd"])
def test_an_objective_without_a_loss_is_named_with_its_phase(name):
    with pytest.raises(NotSupportedYetError, match=rf"training on {name} \(phase 'long'\) is not supported yet; take it out"):
        check_trainable(recipe_of({"mlm": {"share": 0.5}, name: {"share": {"start": 0.5, "end": 0.5}}}))
    check_trainable(recipe_of({"mlm": {"share": 1.0}, name: {"share": 0.0}}))


def test_sides_told_apart_by_token_types_need_two_of_them():
    for count in (0, 1):
        with pytest.raises(UserError, match=f"model.token_types is {count}; set it to 2, or use the form infoxlm"):
            check_trainable(recipe_of({"tlm": {"share": 1.0, "form": "bert"}}, token_types=count))
    check_trainable(recipe_of({"tlm": {"share": 1.0, "form": "bert"}}, token_types=2))
    check_trainable(recipe_of({"tlm": {"share": 1.0, "form": "xlm"}}))
