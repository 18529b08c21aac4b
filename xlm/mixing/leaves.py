"""The leaves of the data plan: every (objective, corpus) of a recipe, and the row plans that each draws from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from xlm.config.phases import Objective, Phase
from xlm.shards.index import PlanEntry, ShardIndex
from xlm.shards.layouts import Layout, layout_of
from xlm.shards.plan_requests import phase_corpora, requested_plans


@dataclass(frozen=True, slots=True)
class Leaf:
    """A corpus drawn for an objective."""

    objective: Objective
    corpus: str
    languages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PhasePlans:
    """The row plans of a phase: by leaf one for every variant, by objective the leaves in their order."""

    plans: Mapping[int, tuple[PlanEntry, ...]]
    leaves_of: Mapping[Objective, tuple[int, ...]]
    layouts: Mapping[Objective, Layout]

    def variant_rows(self, leaf: int) -> tuple[int, ...]:
        """Return the rows of a leaf's plan in every variant."""
        return tuple(plan.rows for plan in self.plans[leaf])

    def epoch_rows(self, leaf: int) -> Fraction:
        """Return the rows of an epoch of a leaf: the mean of its variants, which may differ a lot."""
        rows = self.variant_rows(leaf)
        return Fraction(sum(rows), len(rows))


def plan_leaves(phases: Sequence[Phase], index: ShardIndex) -> tuple[Leaf, ...]:
    """Return every leaf that a phase may draw from, sorted; raises UserError for languages that the corpora lack."""
    documents, pairs = _names(index)
    requested_plans(phases, documents=documents, pairs=pairs)  # the shards stage asks the same questions; here for its errors
    found = {
        (objective, corpus)
        for phase in phases
        for objective in drawn_objectives(phase)
        for corpus in phase_corpora(phase, objective, documents=documents, pairs=pairs)
    }
    return tuple(Leaf(objective, corpus, index.corpora[corpus].languages) for objective, corpus in sorted(found))


def drawn_objectives(phase: Phase) -> list[Objective]:
    """Return the objectives that a phase draws rows for: those whose share is above 0 at some step."""
    return [objective for objective, options in phase.objectives.items() if options.ever_drawn]


def phase_plans(phase: Phase, leaves: Sequence[Leaf], index: ShardIndex) -> PhasePlans:
    """Return the row plans that a phase may draw from; raises UserError for one that was not built."""
    documents, pairs = _names(index)
    number_of = {(leaf.objective, leaf.corpus): number for number, leaf in enumerate(leaves)}
    plans: dict[int, tuple[PlanEntry, ...]] = {}
    leaves_of: dict[Objective, tuple[int, ...]] = {}
    layouts: dict[Objective, Layout] = {}
    for objective in drawn_objectives(phase):
        layout = layouts[objective] = layout_of(objective, phase.objectives[objective])
        corpora = phase_corpora(phase, objective, documents=documents, pairs=pairs)
        leaves_of[objective] = tuple(number_of[objective, corpus] for corpus in corpora)
        for number, corpus in zip(leaves_of[objective], corpora, strict=True):
            plans[number] = tuple(index.plan(corpus, layout, phase.sequence_length, variant) for variant in range(index.variants))
    return PhasePlans(plans, leaves_of, layouts)


def _names(index: ShardIndex) -> tuple[list[str], list[str]]:
    return [entry.name for entry in index.of_kind("monolingual")], [entry.name for entry in index.of_kind("pair")]
