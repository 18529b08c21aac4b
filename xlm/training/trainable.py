"""Whether a recipe's objectives are ones that its model can be trained on, asked before anything is read."""

from __future__ import annotations

from xlm.config.phases import Objective
from xlm.config.recipe import Recipe
from xlm.errors import NotSupportedYetError, UserError

TRAINED_OBJECTIVES: tuple[Objective, ...] = ("mlm", "tlm", "contrastive")


def check_trainable(recipe: Recipe) -> None:
    """Raise NotSupportedYetError for an objective whose loss is missing, UserError for a model that lacks what one needs."""
    for phase in recipe.phases:
        for name, objective in phase.objectives.items():
            if not objective.ever_drawn:
                continue
            if name not in TRAINED_OBJECTIVES:
                raise NotSupportedYetError(
                    f"training on {name} (phase '{phase.name}')",
                    f"take it out of the phase's objectives; trained are {', '.join(TRAINED_OBJECTIVES)}, and pipelines/show_batch.py "
                    "shows what the others would see",
                )
            if objective.form == "bert" and recipe.model.token_types < 2:
                raise UserError(
                    f"phase '{phase.name}' has tlm in the form bert, which tells the two sides apart by token types, but "
                    f"model.token_types is {recipe.model.token_types}; set it to 2, or use the form infoxlm."
                )
