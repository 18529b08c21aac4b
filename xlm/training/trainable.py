"""Whether a recipe's objectives and its model fit each other, asked before anything is read."""

from __future__ import annotations

from xlm.config.phases import SENTENCE_OBJECTIVES, Objective, Phase
from xlm.config.recipe import Recipe
from xlm.config.training import ContrastiveSection
from xlm.errors import UserError

# Parts of a model by their name in its section, and the objectives that train them.
TRAINED_BY: dict[str, tuple[Objective, ...]] = {
    "language_model_head": ("mlm", "tlm", "clm", "nsp", "sop"),
    "sentence_head": SENTENCE_OBJECTIVES,
    "generator": ("rtd",),
    "discriminator_head": ("rtd",),
}


def check_trainable(recipe: Recipe) -> None:
    """Raise UserError for a model that lacks what an objective needs, and for one with a part that nothing trains."""
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
    if recipe.training.validation is not None and not recipe.model.language_model_head:
        raise UserError(
            "training.validation measures MLM and TLM, which need model.language_model_head; take training.validation out, "
            "or set the head to true and draw an objective that trains it."
        )
    if "contrastive" not in drawn:
        _check_contrastive_untouched(recipe.training.contrastive)


def _check_parts(recipe: Recipe, phase: Phase, name: Objective) -> None:
    for part, objectives in TRAINED_BY.items():
        if name in objectives and not getattr(recipe.model, part):
            what = "give it its sizes" if part == "generator" else "set it to true"
            raise UserError(f"phase '{phase.name}' has {name}, which needs model.{part}; {what}, or take {name} out.")


def _check_contrastive_untouched(section: ContrastiveSection) -> None:
    """Raise UserError for options of pairs that no phase draws: they do nothing, and a slow encoder would be kept and saved."""
    for name, field in ContrastiveSection.model_fields.items():
        if getattr(section, name) != field.default:
            raise UserError(
                f"training.contrastive.{name} is {getattr(section, name)}, but no phase draws contrastive, so it does nothing; "
                "take it out, or draw contrastive."
            )


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
