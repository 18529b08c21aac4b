"""The data plan: which rows make up global batch b, from (seed, recipe, b) alone.

    step -> phase -> rows before and after it in the whole run
         -> cumulative rows of every leaf (objective, corpus)      plateaus.py, tree.py
         -> epoch, variant and place of each                       row_cycle.py
         -> row, by the epoch's order                              row_order.py

Nothing is carried from step to step, so any batch costs the same, and neither ranks nor micro-batches
enter. The leaves of an objective stay in one subtree: its share holds within a row in every batch, which
keeps the logical group of contrastive pairs the same size throughout.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from xlm.config.phases import Objective
from xlm.config.recipe import Recipe
from xlm.errors import UserError
from xlm.mixing.batch_rows import BatchRows, Column
from xlm.mixing.leaves import Leaf, PhasePlans, phase_plans, plan_leaves
from xlm.mixing.plateaus import planned_plateaus
from xlm.mixing.row_cycle import Places, RowCycles
from xlm.mixing.row_order import RowOrders
from xlm.mixing.steps import Steps
from xlm.seeding import key_int64
from xlm.shards.index import ShardIndex
from xlm.shards.layouts import Layout

# Steps of a phase whose objectives are counted one by one (a tenth of a second).
SCANNED_STEPS = 100_000


@dataclass(frozen=True, slots=True)
class PlannedLeaf:
    """What a run, or a stretch of it, draws from one corpus for one objective; ``tokens`` are of text, special pieces not counted."""

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

        Raises UserError for a language, corpus or row plan that the shards lack, and where data run out under a cap.
        """
        self.recipe = recipe
        self.total_steps = recipe.total_steps
        self.leaves: tuple[Leaf, ...] = plan_leaves(recipe.phases, index)
        # The position of a language here is its id in every batch and in the model.
        self.languages: tuple[str, ...] = tuple(sorted({language for leaf in self.leaves for language in leaf.languages}))
        self._steps = Steps.of(recipe)
        self._plans = [phase_plans(phase, self.leaves, index) for phase in recipe.phases]
        planned = planned_plateaus(recipe, self._steps, self.leaves, self._plans, index)
        self._phase_of_plateau = planned.phase_of
        self.cap_events = planned.cap_events
        self._check_every_language_is_drawn(planned.drawn)
        self.tree, self.plateaus = planned.tree, planned.plateaus
        self._cycles = [self._row_cycles(plans, index.variants) for plans in self._plans]
        self._orders = [self._row_orders(number, index.variants) for number in range(len(recipe.phases))]
        self._counts = [self.tree.counts(rows) for rows in self._steps.first_rows]
        self._bases = self._rows_before_phases()

    def phase_at(self, step: int) -> tuple[int, int]:
        """Return (index of the phase, step inside the phase) of a step of the run."""
        if not 0 <= step < self.total_steps:
            raise UserError(f"step {step} is outside this run; its steps are 0 to {self.total_steps - 1}.")
        phase = bisect_right(self._steps.first_steps, step) - 1
        return phase, step - self._steps.first_steps[phase]

    def layout(self, phase: int, leaf: int) -> Layout:
        """Return the layout of the row plan that a phase's rows of a leaf come from."""
        return self._plans[phase].layouts[self.leaves[leaf].objective]

    def rows_per_step(self, phase: int) -> int:
        """Return the rows of the largest global batch of a phase: floor(tokens_per_step / sequence_length), once batches have grown."""
        return self._steps.most_rows(phase)

    def first_row(self, step: int) -> int:
        """Return how many rows of the run lie before a step, or before the run's end."""
        return self._steps.first_row(step)

    def most_rows_per_step(self, phase: int, objective: Objective) -> int:
        """Return the most rows that one objective has in any global batch of a phase.

        Exact up to `SCANNED_STEPS` steps; for a longer phase a bound that may be two rows higher.
        """
        if objective not in self._plans[phase].leaves_of:
            return 0
        if self.recipe.phases[phase].steps > SCANNED_STEPS:
            rows = self._steps.most_rows(phase)
            # Plateaus where shares change begin with a step; where a cap splits one, the shares of objectives stay.
            plateaus = range(bisect_left(self._phase_of_plateau, phase), bisect_right(self._phase_of_plateau, phase))
            return max(self.tree.most_in_window(objective, plateau, rows) for plateau in plateaus)
        first, stop = self._steps.first_steps[phase : phase + 2]
        edges = [*map(self._steps.first_row, range(first, stop)), self._steps.first_rows[phase + 1]]
        return max(after - before for before, after in pairwise(self.tree.group_count(objective, edge) for edge in edges))

    def rows(self, step: int) -> BatchRows:
        """Return the rows of global batch ``step``, at most [rows_per_step], in order of leaf, then row."""
        number, step_in_phase = self.phase_at(step)
        first, count = self._steps.first_row(step), self._steps.rows_of(step)
        drawn, before, after = np.array(sorted(self.tree.between(first, first + count)), dtype=np.int64).T
        counts = after - before
        leaf = np.repeat(drawn, counts)
        # The k-th row that a leaf gives, counted over what the phases before took from the same row plan.
        number_of_row = np.arange(count) + np.repeat(before + self._bases[number][drawn] - np.cumsum(counts) + counts, counts)
        places, row = self.locate(number, leaf, number_of_row)
        order = np.lexsort((row, leaf))  # stable: of a row that comes twice the earlier epoch first
        phase = self.recipe.phases[number]
        return BatchRows(
            step=step,
            phase=number,
            sequence_length=phase.sequence_length,
            mask_rate=phase.mask_rate_at(step_in_phase),
            number=np.arange(count),
            leaf=leaf,
            epoch=places.epoch[order],
            variant=places.variant[order],
            row=row[order],
        )

    def locate(self, phase: int, leaf: Column, number: Column) -> tuple[Places, Column]:
        """Return (places in epochs, rows) of the ``number``-th row [m], from 0, that a phase's row plan of ``leaf`` [m] gives."""
        places = self._cycles[phase].locate(leaf, number)
        return places, self._orders[phase].rows(leaf, places)

    def planned(self, start_step: int = 0, stop_step: int | None = None) -> tuple[PlannedLeaf, ...]:
        """Return what steps ``start_step`` to ``stop_step`` (default: all) draw from every leaf."""
        stop_step = self.total_steps if stop_step is None else stop_step
        rows, tokens = np.zeros((2, len(self.leaves)), dtype=np.int64)
        epochs = np.zeros(len(self.leaves))
        for number in range(len(self.recipe.phases)):
            grown = self._counts_at(number, stop_step) - self._counts_at(number, start_step)
            rows += grown
            tokens += self._text_tokens(number, grown)
            epochs += self._cycles[number].epochs(grown)
        return self._planned_leaves(rows, tokens, epochs)

    def planned_by_phase(self) -> tuple[tuple[PlannedLeaf, ...], ...]:
        """Return what every phase draws from every leaf."""
        edges = pairwise(self._steps.first_steps)
        return tuple(self.planned(first, stop) for first, stop in edges)

    def epochs_at(self, step: int) -> NDArray[np.float64]:
        """Return how many epochs of each leaf [leaves] the steps before ``step`` draw."""
        epochs = np.zeros(len(self.leaves))
        for number, cycles in enumerate(self._cycles):
            epochs += cycles.epochs(self._counts_at(number, step) - self._counts[number])
        return epochs

    def _counts_at(self, phase: int, step: int) -> NDArray[np.int64]:
        """Return the counts of all leaves before ``step``, held within a phase."""
        first, stop = self._steps.first_steps[phase : phase + 2]
        if step <= first or step >= stop:
            return self._counts[phase if step <= first else phase + 1]
        return self.tree.counts(self._steps.first_row(step))

    def _text_tokens(self, phase: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the tokens of text in so many rows [leaves] of a phase: as many a row as the leaf's row plans hold on average."""
        tokens = np.zeros(len(rows), dtype=np.int64)
        for leaf, plans in self._plans[phase].plans.items():
            planned_rows = sum(plan.rows for plan in plans)
            if planned_rows:
                tokens[leaf] = round(int(rows[leaf]) * sum(plan.text_tokens for plan in plans) / planned_rows)
        return tokens

    def _planned_leaves(self, rows: NDArray[np.int64], tokens: NDArray[np.int64], epochs: NDArray[np.float64]) -> tuple[PlannedLeaf, ...]:
        columns = zip(self.leaves, rows.tolist(), tokens.tolist(), epochs.tolist(), strict=True)
        return tuple(PlannedLeaf(leaf.objective, leaf.corpus, leaf.languages, *figures) for leaf, *figures in columns)

    def _row_cycles(self, plans: PhasePlans, variants: int) -> RowCycles:
        nothing = (0,) * variants
        return RowCycles([plans.variant_rows(leaf) if leaf in plans.plans else nothing for leaf in range(len(self.leaves))])

    def _row_orders(self, phase: int, variants: int) -> RowOrders:
        """Return the orders of a phase's rows; phases of one layout and length go on in one order."""
        length, seed = self.recipe.phases[phase].sequence_length, self.recipe.seed
        layouts = self._plans[phase].layouts
        keys = [
            key_int64("row order", seed, leaf.corpus, leaf.objective, layouts[leaf.objective], length) if leaf.objective in layouts else 0
            for leaf in self.leaves
        ]
        window = self.recipe.shards.shuffle_window
        plans = self._plans[phase].plans if window is not None else {}
        blocks = {(leaf, plan.variant): plan.block_rows for leaf, of_leaf in plans.items() for plan in of_leaf}
        return RowOrders(keys, blocks, variants=variants, window=window)

    def _rows_before_phases(self) -> list[NDArray[np.int64]]:
        """Return by phase and leaf what to add to the tree's count, so that a row plan continues where it was left.

        The tree counts a leaf's rows of every layout and length; a row plan only those of its own. Phases of
        one layout and length share their row plans.
        """
        used: dict[tuple[Objective, Layout, int], NDArray[np.int64]] = {}
        bases: list[NDArray[np.int64]] = []
        for number, phase in enumerate(self.recipe.phases):
            base = np.zeros(len(self.leaves), dtype=np.int64)
            before, after = self._counts[number : number + 2]
            for objective, leaves in self._plans[number].leaves_of.items():
                key = (objective, self._plans[number].layouts[objective], phase.sequence_length)
                of_plan = used.setdefault(key, np.zeros(len(self.leaves), dtype=np.int64))
                mine = np.array(leaves, dtype=np.int64)
                base[mine] = of_plan[mine] - before[mine]
                of_plan[mine] += after[mine] - before[mine]
            bases.append(base)
        return bases

    def _check_every_language_is_drawn(self, drawn: Sequence[frozenset[int]]) -> None:
        """Raise UserError where a phase names a language and its weights leave it out; one that is used up is no mistake."""
        for phase, leaves in zip(self.recipe.phases, drawn, strict=True):
            if phase.languages == "all":
                continue
            found = {language for leaf in leaves for language in self.leaves[leaf].languages}
            missing = [language for language in phase.languages if language not in found]
            if missing:
                raise UserError(
                    f"phase '{phase.name}' names {', '.join(missing)} but draws no row of {'it' if len(missing) == 1 else 'them'}; "
                    f"drawn are: {', '.join(sorted(found))}; change languages, objectives or sampling."
                )
