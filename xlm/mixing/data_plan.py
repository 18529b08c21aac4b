"""The data plan: which rows make up global batch b, in which order, from (seed, recipe, b) alone.

    step -> phase -> rows before and after it in the whole run
         -> cumulative rows of every leaf (objective, corpus)      tree.py
         -> epoch, variant and place of each                       row_cycle.py
         -> row id, by the epoch's bijection                       bijection.py
         -> the batch's order, by a keyed shuffle

Nothing is carried from step to step, so any batch costs the same, and neither ranks nor micro-batches
enter. The leaves of an objective stay in one subtree: its share holds within a row in every batch, which
keeps the logical group of contrastive pairs the same size throughout.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise

import numpy as np

from xlm.config.phases import Objective
from xlm.config.recipe import Recipe
from xlm.errors import UserError
from xlm.mixing.bijection import permute
from xlm.mixing.leaves import Leaf, phase_weights, plan_leaves
from xlm.mixing.row_cycle import EpochSpan, RowCycle
from xlm.mixing.tree import CountTree, Plateau
from xlm.seeding import key_int64, keyed_generator
from xlm.shards.index import ShardIndex

# Steps of a phase whose objectives are counted one by one (a tenth of a second).
SCANNED_STEPS = 100_000


@dataclass(frozen=True, slots=True)
class RowRef:
    """One row of a global batch: where it lies, and how it is to be used."""

    objective: Objective
    corpus: str
    epoch: int
    variant: int
    row: int
    sequence_length: int
    phase: int
    mask_rate: float
    loss_weight: float


@dataclass(frozen=True, slots=True)
class PlannedLeaf:
    """What a run, or a stretch of it, draws from one corpus for one objective; ``tokens`` counts full rows."""

    objective: Objective
    corpus: str
    languages: tuple[str, ...]
    rows: int
    tokens: int
    epochs: float


class DataPlan:
    """The rows of every step of a recipe over a shards folder's index."""

    def __init__(self, recipe: Recipe, index: ShardIndex) -> None:
        """Plan the whole run.

        Raises UserError for a language, corpus or row plan that the shards lack.
        """
        self.recipe = recipe
        self.total_steps = recipe.total_steps
        self.leaves: tuple[Leaf, ...] = plan_leaves(recipe.phases, index)
        # The position of a language here is its id in every batch and in the model.
        self.languages: tuple[str, ...] = tuple(sorted({language for leaf in self.leaves for language in leaf.languages}))
        self._rows_per_step = [recipe.training.tokens_per_step // phase.sequence_length for phase in recipe.phases]
        self._first_steps = [0, *accumulate(phase.steps for phase in recipe.phases)]
        plateau_rows = [phase.steps * rows for phase, rows in zip(recipe.phases, self._rows_per_step, strict=True)]
        self._first_rows = [0, *accumulate(plateau_rows)]
        weights = [phase_weights(phase, self.leaves, index) for phase in recipe.phases]
        self._check_every_language_is_drawn(weights)
        self.tree = CountTree(
            [Plateau(rows, of_phase) for rows, of_phase in zip(plateau_rows, weights, strict=True)],
            groups=[leaf.objective for leaf in self.leaves],
        )
        self._cycles = self._row_cycles(index, weights)
        self._bases = self._rows_before_phases()

    def phase_at(self, step: int) -> tuple[int, int]:
        """Return (index of the phase, step inside the phase) of a step of the run."""
        if not 0 <= step < self.total_steps:
            raise UserError(f"step {step} is outside this run; its steps are 0 to {self.total_steps - 1}.")
        phase = bisect_right(self._first_steps, step) - 1
        return phase, step - self._first_steps[phase]

    def rows_per_step(self, phase: int) -> int:
        """Return the rows of a global batch in a phase: floor(tokens_per_step / sequence_length)."""
        return self._rows_per_step[phase]

    def most_rows_per_step(self, phase: int, objective: Objective) -> int:
        """Return the most rows that one objective has in any global batch of a phase.

        Exact up to `SCANNED_STEPS` steps; for a longer phase a bound that may be two rows higher.
        """
        if all(leaf.objective != objective for leaf in self.leaves):
            return 0
        rows, first = self._rows_per_step[phase], self._first_rows[phase]
        if self.recipe.phases[phase].steps > SCANNED_STEPS:
            return self.tree.most_in_window(objective, phase, rows)
        counts = [self.tree.group_count(objective, end) for end in range(first, self._first_rows[phase + 1] + 1, rows)]
        return max(after - before for before, after in pairwise(counts))

    def rows(self, step: int) -> tuple[RowRef, ...]:
        """Return the rows of global batch ``step``, in its order."""
        number, step_in_phase = self.phase_at(step)
        phase, count = self.recipe.phases[number], self._rows_per_step[number]
        first = self._first_rows[number] + step_in_phase * count
        spans: list[tuple[Leaf, EpochSpan]] = []
        for place, before, after in self.tree.between(first, first + count):
            shift, cycle = self._bases[number][place], self._cycles[number][place]
            spans += [(self.leaves[place], span) for span in cycle.spans(before + shift, after + shift)]
        row_ids = self._row_ids(spans, phase.sequence_length)
        refs: list[RowRef] = []
        for leaf, span in spans:
            objective = phase.objectives[leaf.objective]
            for row in row_ids[len(refs) : len(refs) + span.stop - span.first]:
                refs.append(
                    RowRef(
                        leaf.objective,
                        leaf.corpus,
                        span.epoch,
                        span.variant,
                        row,
                        phase.sequence_length,
                        number,
                        phase.mask_rate,
                        objective.loss_weight,
                    )
                )
        # Raw words and a stable sort, because a library's own shuffle may change between versions.
        words = keyed_generator("batch order", self.recipe.seed, step).bit_generator.random_raw(count)
        return tuple(refs[place] for place in np.argsort(words, kind="stable").tolist())

    def _row_ids(self, spans: Sequence[tuple[Leaf, EpochSpan]], length: int) -> list[int]:
        """Map the places of every span through the bijection of its corpus, objective, length and epoch, in one pass."""
        counts = [span.stop - span.first for _, span in spans]
        seeds = [key_int64("row order", self.recipe.seed, leaf.corpus, leaf.objective, length, span.epoch) for leaf, span in spans]
        places = np.concatenate([np.arange(span.first, span.stop, dtype=np.int64) for _, span in spans])
        sizes = np.repeat(np.array([span.rows for _, span in spans], dtype=np.int64), counts)
        row_ids: list[int] = permute(places, sizes, np.repeat(np.array(seeds, dtype=np.int64), counts)).tolist()
        return row_ids

    def planned(self, start_step: int = 0, stop_step: int | None = None) -> tuple[PlannedLeaf, ...]:
        """Return what steps ``start_step`` to ``stop_step`` (default: all) draw from every leaf, tokens as rows x length."""
        stop_step = self.total_steps if stop_step is None else stop_step
        rows = [0] * len(self.leaves)
        tokens = [0] * len(self.leaves)
        epochs = [0.0] * len(self.leaves)
        for number, phase in enumerate(self.recipe.phases):
            first, last = (min(max(step, self._first_steps[number]), self._first_steps[number + 1]) for step in (start_step, stop_step))
            if first >= last:
                continue
            window = (self._first_rows[number] + (step - self._first_steps[number]) * self._rows_per_step[number] for step in (first, last))
            for leaf, before, after in self.tree.between(*window):
                rows[leaf] += after - before
                tokens[leaf] += (after - before) * phase.sequence_length
                epochs[leaf] += self._cycles[number][leaf].epochs(after - before)
        return tuple(
            PlannedLeaf(leaf.objective, leaf.corpus, leaf.languages, rows[number], tokens[number], epochs[number])
            for number, leaf in enumerate(self.leaves)
        )

    def _row_cycles(self, index: ShardIndex, weights: Sequence[Sequence[Fraction]]) -> list[dict[int, RowCycle]]:
        """Return by phase and leaf the cycle of epochs that the phase draws from; raises UserError where there are no rows."""
        cycles: list[dict[int, RowCycle]] = []
        for phase, of_phase in zip(self.recipe.phases, weights, strict=True):
            of_leaves: dict[int, RowCycle] = {}
            for number, leaf in enumerate(self.leaves):
                if not of_phase[number]:
                    continue
                rows = [index.rows(leaf.corpus, leaf.objective, phase.sequence_length, variant) for variant in range(index.variants)]
                if not sum(rows):
                    raise UserError(
                        f"phase '{phase.name}' draws {leaf.objective} rows of '{leaf.corpus}', but none fits at sequence_length "
                        f"{phase.sequence_length}; leave its languages out, give them weight 0, or use longer rows."
                    )
                of_leaves[number] = RowCycle(rows)
            cycles.append(of_leaves)
        return cycles

    def _rows_before_phases(self) -> list[list[int]]:
        """Return by phase and leaf what to add to the tree's count, so that a row plan continues where it was left.

        The tree counts a leaf's rows of every length; a row plan only those of its own. Phases of one
        length share their row plans.
        """
        counts = [self.tree.counts(rows).tolist() for rows in self._first_rows]
        used: dict[int, list[int]] = {}
        bases: list[list[int]] = []
        for number, phase in enumerate(self.recipe.phases):
            before = used.setdefault(phase.sequence_length, [0] * len(self.leaves))
            bases.append([done - count for done, count in zip(before, counts[number], strict=True)])
            grown = [after - first for first, after in zip(counts[number], counts[number + 1], strict=True)]
            used[phase.sequence_length] = [done + new for done, new in zip(before, grown, strict=True)]
        return bases

    def _check_every_language_is_drawn(self, weights: Sequence[Sequence[Fraction]]) -> None:
        """Raise UserError where a phase names a language and then never draws a row of it."""
        for phase, of_phase in zip(self.recipe.phases, weights, strict=True):
            drawn = {language for leaf, weight in zip(self.leaves, of_phase, strict=True) if weight for language in leaf.languages}
            missing = [language for language in phase.languages if language not in drawn] if phase.languages != "all" else []
            if missing:
                raise UserError(
                    f"phase '{phase.name}' names {', '.join(missing)} but draws no row of {'it' if len(missing) == 1 else 'them'}; "
                    f"drawn are: {', '.join(sorted(drawn))}; change languages, objectives or sampling."
                )
