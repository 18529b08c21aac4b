"""The rows that training is validated on: of every corpus some that were set aside, the same for every recipe and step.

They follow from the shards, `training.validation` and the languages of the run alone, never from how a recipe mixes: runs
over the same shards read the same rows. Documents are read as MLM, pairs as TLM, at one length, a share of .15 masked
piece by piece, whatever training does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from xlm.config.phases import Objective, ObjectiveShare, Phase, ProportionalSampling
from xlm.config.recipe import Recipe
from xlm.config.training import ValidationSection
from xlm.errors import UserError
from xlm.mixing.batch_rows import BatchRows, Column
from xlm.mixing.bijection import permute
from xlm.mixing.leaves import Leaf
from xlm.seeding import key_int64
from xlm.shards.index import PlanEntry, ShardIndex
from xlm.shards.layouts import Layout

MASK_RATE = 0.15


class HeldOutRows:
    """What a `RowBuilder` asks of a plan, for the rows set aside; ``languages`` are the run's, in the order of their ids."""

    def __init__(self, recipe: Recipe, validation: ValidationSection, index: ShardIndex, languages: Sequence[str]) -> None:
        """Choose the rows; raises UserError where of no language anything was set aside."""
        index.check_held_out(recipe.shards.held_out_share)
        plans = [plan for plan in index.held_out() if plan.rows]
        corpora_of = Counter(language for plan in plans for language in _pair(index, plan))
        known = set(languages)
        mine = sorted((_objective(plan), plan.corpus) for plan in plans if known.issuperset(index.corpora[plan.corpus].languages))
        if not mine:
            raise UserError(
                "nothing to validate on: of the languages of this run, shards.held_out_share set no rows aside; "
                "raise it and build the shards again, or take training.validation out."
            )
        self.leaves: tuple[Leaf, ...] = tuple(Leaf(objective, corpus, index.corpora[corpus].languages) for objective, corpus in mine)
        self.languages: tuple[str, ...] = tuple(languages)
        by_corpus = {plan.corpus: plan for plan in plans}
        self._plans = [by_corpus[leaf.corpus] for leaf in self.leaves]
        self.sequence_length = self._plans[0].length
        self.recipe = recipe.model_copy(update={"phases": (_phase(recipe, self.sequence_length),)})
        self._variant = index.variants
        # A pair corpus counts for the language that has fewer of them: with a hundred others English has enough rows anyway.
        self._chosen = [
            _choose(plan, validation, min((corpora_of[language] for language in _pair(index, plan)), default=1)) for plan in self._plans
        ]

    def summary(self) -> str:
        """Say how many rows there are, and which languages have none."""
        read = {language for leaf in self.leaves for language in leaf.languages}
        without = [language for language in self.languages if language not in read]
        lacking = f"; none has text in {', '.join(without)} (a larger shards.held_out_share sets more aside)" if without else ""
        return f"validation on {len(self.rows()):,} held-out rows of {len(self.leaves)} corpora{lacking}."

    def layout(self, phase: int, leaf: int) -> Layout:
        """Return the layout of the row plan that the rows of a leaf come from."""
        return self._plans[leaf].layout

    def rows(self) -> BatchRows:
        """Return all rows, in order of leaf, then row."""
        leaf = np.repeat(np.arange(len(self.leaves)), [len(rows) for rows in self._chosen])
        zeros = np.zeros_like(leaf)
        return BatchRows(
            step=0,
            phase=0,
            sequence_length=self.sequence_length,
            mask_rate=MASK_RATE,
            number=np.arange(len(leaf)),
            leaf=leaf,
            epoch=zeros,
            variant=np.full_like(leaf, self._variant),
            row=np.concatenate(self._chosen),
        )


def _objective(plan: PlanEntry) -> Objective:
    return "mlm" if plan.layout == "documents" else "tlm"


def _pair(index: ShardIndex, plan: PlanEntry) -> tuple[str, ...]:
    """Return the languages of a pair corpus, none for documents."""
    return index.corpora[plan.corpus].languages if plan.layout != "documents" else ()


def _choose(plan: PlanEntry, validation: ValidationSection, corpora: int) -> Column:
    """Return the rows [m], ascending, that stand for one of so many corpora of a language."""
    wanted = min(plan.rows, -(-validation.rows_per_language // corpora))
    places = np.arange(wanted, dtype=np.int64)
    key = key_int64("validation rows", validation.seed, plan.corpus, plan.layout, plan.length)
    return np.sort(permute(places, np.full_like(places, plan.rows), np.full(wanted, key, dtype=np.uint64)))


def _phase(recipe: Recipe, length: int) -> Phase:
    """Return how the rows are laid out and masked; TLM in the form that the recipe trains, which is what the model can read."""
    forms = [phase.objectives["tlm"].form for phase in recipe.phases if "tlm" in phase.objectives]
    return Phase(
        name="validation",
        steps=1,
        sequence_length=length,
        sampling=ProportionalSampling(kind="proportional"),
        objectives={"mlm": ObjectiveShare(share=0.5), "tlm": ObjectiveShare(share=0.5, form=forms[0] if forms else "infoxlm")},
        mask_rate=MASK_RATE,
    )
