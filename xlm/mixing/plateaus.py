"""The plateaus of a run: stretches of rows over which shares and weights stay as they are.

A phase is one plateau, or, where sampling or shares move, a stair of ``ramp_plateaus`` of them, each of
whole steps and with the values of its middle. Caps on epochs split plateaus further (`capping.py`). UniMax
(Chung et al. 2023) shares out the rows that a phase gives to an objective; what a corpus can still give is
its cap less what the phases before have used.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from xlm.config.phases import Objective, Phase, ShareRamp, UniMaxSampling
from xlm.config.recipe import Recipe
from xlm.errors import UserError
from xlm.mixing.capping import CappedPlan, EpochLimit, Exhausted, capped_plateaus
from xlm.mixing.corpus_weights import Weights, weights_in_phase
from xlm.mixing.leaves import Leaf, PhasePlans
from xlm.mixing.sampling import unimax_shares
from xlm.mixing.steps import Steps
from xlm.mixing.tree import CountTree
from xlm.mixing.tree_weights import Plateau
from xlm.shards.index import ShardIndex


@dataclass(frozen=True, slots=True)
class CapReached:
    """From ``step`` (of the run, in phase ``phase``) on leaf ``leaf`` gives no row: another would be over ``max_epochs``.

    A cap holds for a corpus in each objective: two that read the same text come to theirs separately.
    """

    leaf: int
    step: int
    phase: int


@dataclass(frozen=True, slots=True)
class PlannedPlateaus:
    """The counts of a run, its plateaus, the phase of each, where caps bind, and what each phase draws where none does."""

    tree: CountTree
    plateaus: tuple[Plateau, ...]
    phase_of: tuple[int, ...]
    cap_events: tuple[CapReached, ...]
    drawn: tuple[frozenset[int], ...]


def planned_plateaus(
    recipe: Recipe, steps: Steps, leaves: Sequence[Leaf], plans: Sequence[PhasePlans], index: ShardIndex
) -> PlannedPlateaus:
    """Return the plateaus of a run; raises UserError where weights cannot be made or the rows under a cap run out."""
    groups = [leaf.objective for leaf in leaves]
    plateaus: list[Plateau] = []
    limits: list[Mapping[int, EpochLimit]] = []
    phase_of: list[int] = []
    drawn: list[frozenset[int]] = []

    def capped() -> CappedPlan:
        try:
            return capped_plateaus(plateaus, limits, groups)
        except Exhausted as error:
            number = phase_of[error.plateau]
            before = plateaus[phase_of.index(number) : error.plateau]  # the stairs of the phase that were drawn in full
            raise _run_out(recipe, steps, number, int(_rows_of(error.group, before)) + error.drawable, error) from None

    for number, phase in enumerate(recipe.phases):
        stairs = _stairs(phase, steps, steps.first_steps[number])
        if isinstance(phase.sampling, UniMaxSampling):
            used = _epochs_used(capped().tree, steps, plans[:number]) if number else {}
            weights = [_unimax_weights(phase, phase.sampling, stairs, plans[number], used)] * len(stairs)
            drawn.append(frozenset(leaf for leaf in plans[number].plans if plans[number].epoch_rows(leaf)))
        else:
            weights = _stair_weights(phase, stairs, leaves, plans[number], index)
            drawn.append(frozenset(leaf for of_stair in weights for leaf in of_stair))
        plateaus += [Plateau(stair.rows, stair.shares, of_stair) for stair, of_stair in zip(stairs, weights, strict=True)]
        limits += [_limits(phase, plans[number])] * len(stairs)
        phase_of += [number] * len(stairs)
    plan = capped()
    phases = tuple(phase_of[origin] for origin in plan.origins)
    return PlannedPlateaus(plan.tree, plan.plateaus, phases, tuple(_reached(plan, phases, steps)), tuple(drawn))


def _reached(plan: CappedPlan, phases: Sequence[int], steps: Steps) -> Iterator[CapReached]:
    """Yield for every cap that binds the first whole step that it leaves its leaf out of, unless its phase ends before."""
    for event in plan.events:
        phase, step = steps.beginning_at(event.row)
        if phase == steps.at_row(event.row)[0] or (phase in phases and event.leaf in plan.plateaus[phases.index(phase)].gone):
            yield CapReached(event.leaf, step, phase)


@dataclass(frozen=True, slots=True)
class _Stair:
    rows: int
    fraction: float  # of the phase, at the stair's middle
    shares: Mapping[Objective, Fraction]


def _stairs(phase: Phase, steps: Steps, first_step: int) -> list[_Stair]:
    """Split the steps of a phase as evenly as whole steps allow; one stair where nothing moves."""
    count = min(phase.ramp_plateaus, phase.steps) if phase.has_ramps else 1
    stairs: list[_Stair] = []
    for first, stop in pairwise(phase.steps * number // count for number in range(count + 1)):
        # A ramp runs from the first step of the phase to its last.
        middle = Fraction(first + stop - 1, 2 * max(1, phase.steps - 1))
        shares = {objective: _exact_share(options.share, middle) for objective, options in phase.objectives.items()}
        rows = steps.first_row(first_step + stop) - steps.first_row(first_step + first)
        stairs.append(_Stair(rows, float(middle), {name: share for name, share in shares.items() if share}))
    return stairs


def _exact_share(share: float | ShareRamp, fraction: Fraction) -> Fraction:
    """Return a share as it is written: 0.4 is two fifths, not the binary number nearest to it."""
    if isinstance(share, ShareRamp):
        start, end = Fraction(str(share.start)), Fraction(str(share.end))
        return start + (end - start) * fraction
    return Fraction(str(share))


def _stair_weights(phase: Phase, stairs: Sequence[_Stair], leaves: Sequence[Leaf], plans: PhasePlans, index: ShardIndex) -> list[Weights]:
    by_objective = [weights_in_phase(phase, objective, leaves, plans, index) for objective in plans.leaves_of]

    def at(fraction: float) -> Weights:
        return {leaf: weight for of_objective in by_objective for leaf, weight in of_objective(fraction).items()}

    if isinstance(getattr(phase.sampling, "alpha", None), ShareRamp):
        return [at(stair.fraction) for stair in stairs]
    return [at(0.0)] * len(stairs)  # the same object: what does not change costs the tree nothing


def _limits(phase: Phase, plans: PhasePlans) -> dict[int, EpochLimit]:
    cap = None if phase.sampling.max_epochs is None else Fraction(str(phase.sampling.max_epochs))
    rows = {leaf: plans.epoch_rows(leaf) for leaf in plans.plans}
    return {leaf: EpochLimit(of_leaf, cap) for leaf, of_leaf in rows.items() if of_leaf}


def _epochs_used(tree: CountTree, steps: Steps, plans: Sequence[PhasePlans]) -> dict[int, Fraction]:
    """Return by leaf the epochs that the phases of ``plans`` draw."""
    used: dict[int, Fraction] = {}
    counts = [tree.counts(steps.first_rows[number]).tolist() for number in range(len(plans) + 1)]
    for of_phase, (before, after) in zip(plans, pairwise(counts), strict=True):
        for leaf in of_phase.plans:
            if after[leaf] > before[leaf]:
                used[leaf] = used.get(leaf, Fraction(0)) + (after[leaf] - before[leaf]) / of_phase.epoch_rows(leaf)
    return used


def _unimax_weights(
    phase: Phase, sampling: UniMaxSampling, stairs: Sequence[_Stair], plans: PhasePlans, used: Mapping[int, Fraction]
) -> Weights:
    """Return UniMax's share of every leaf among the rows that its objective gets in the phase."""
    cap = Fraction(str(sampling.max_epochs))
    weights: dict[int, Fraction] = {}
    for objective, numbers in plans.leaves_of.items():
        rows = _rows_of(objective, stairs)
        capacities = [max(0, int((cap - used.get(leaf, 0)) * plans.epoch_rows(leaf))) for leaf in numbers]
        if rows > sum(capacities):
            raise UserError(
                f"phase '{phase.name}' draws {int(rows):,} {objective} rows, but its corpora have {sum(capacities):,} left under "
                f"max_epochs {sampling.max_epochs:g}; raise max_epochs, shorten the phase, "
                f"give it more languages, or lower the share of {objective}."
            )
        shares = unimax_shares(capacities=capacities, budget=rows)
        weights |= {leaf: share for leaf, share in zip(numbers, shares, strict=True) if share}
    return weights


def _rows_of(objective: Hashable, stretches: Sequence[_Stair] | Sequence[Plateau]) -> Fraction:
    """Return the rows that an objective gets in stretches of a run."""
    rows = Fraction(0)
    for stretch in stretches:
        shares: Mapping[Any, Fraction | int] = stretch.shares
        rows += Fraction(stretch.rows) * shares.get(objective, 0) / sum(shares.values())
    return rows


def _run_out(recipe: Recipe, steps: Steps, number: int, rows: int, error: Exhausted) -> UserError:
    phase = recipe.phases[number]
    _, step = steps.at_row(error.row)
    return UserError(
        f"phase '{phase.name}' runs out of {error.group} rows at step {step} of {recipe.total_steps}: max_epochs "
        f"{phase.sampling.max_epochs:g} leaves it {rows:,} of them; raise max_epochs, shorten the phase, give it more "
        f"languages, or lower the share of {error.group}."
    )
