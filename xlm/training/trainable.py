"""Whether a recipe's objectives and its model fit each other, asked before anything is read."""

from __future__ import annotations

from xlm.config.phases import SENTENCE_OBJECTIVES, Objective, Phase
from xlm.config.recipe import Recipe
from xlm.errors import NotSupportedYetError, UserError

# Parts of a model by their name in its section, and the objectives that train them.
TRAINED_BY: dict[str, tuple[Objective, ...]] = {
    "language_model_head": ("mlm", "tlm", "clm", "nsp", "sop"),
    "sentence_head": SENTENCE_OBJECTIVES,
    "generator": ("rtd",),
    "discriminator_head": ("rtd",),
}


def check_trainable(recipe: Recipe) -> None:
    """Raise UserError for a model that lacks what an objective needs, and for one with a part that nothing trains."""
    if recipe.training.compile:
        raise NotSupportedYetError("training.compile", "set it to false; layers run as they are")
    drawn: set[Objective] = set()
    for phase in recipe.phases:
        of_phase = {name for name, objective in phase.objectives.items() if objective.ever_drawn}
        for name in sorted(of_phase):
            _check_parts(recipe, phase, name)
            _check_token_types(recipe, phase, name)
        drawn |= of_phase
    for part, objectives in TRAINED_BY.items():
        if getattr(recipe.model, part) and not drawn & set(objectives):
            raise UserError(
                f"model.{part} is set, but no phase draws {' or '.join(objectives)}, so nothing would train it; "
                f"set it to {'null' if part == 'generator' else 'false'}, or draw one of them."
            )
    if "rtd" in drawn and recipe.model.language_model_head and not recipe.model.tied_output:
        raise UserError(
            "model.tied_output is false, but rtd's generator reads its pieces off the token table; set it to true, or leave rtd out."
        )


def _check_parts(recipe: Recipe, phase: Phase, name: Objective) -> None:
    for part, objectives in TRAINED_BY.items():
        if name in objectives and not getattr(recipe.model, part):
            what = "give it its sizes" if part == "generator" else "set it to true"
            raise UserError(f"phase '{phase.name}' has {name}, which needs model.{part}; {what}, or take {name} out.")


def _check_token_types(recipe: Recipe, phase: Phase, name: Objective) -> None:
    if recipe.model.token_types >= 2:
        return
    if phase.objectives[name].form == "bert":
        raise UserError(
            f"phase '{phase.name}' has tlm in the form bert, which tells the two sides apart by token types, but "
            f"model.token_types is {recipe.model.token_types}; set it to 2, or use the form infoxlm."
        )
    if name in SENTENCE_OBJECTIVES:
        raise UserError(
            f"phase '{phase.name}' has {name}, which tells two spans apart by token types, but model.token_types is "
            f"{recipe.model.token_types}; set it to 2."
        )
