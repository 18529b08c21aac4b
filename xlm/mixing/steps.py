"""Where the steps of a run lie among its rows: a function of the step alone, also while batches grow.

With batch warm-up the tokens of step s < w are S + (T - S) s / w, S ``start_tokens``, T ``tokens_per_step``, w the warm-up's steps;
its rows are as many whole ones as these hold. How many rows lie before a step is then a sum of floors, which has a closed form.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate, pairwise

from xlm.config.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Steps:
    """The phases of a run in steps and in rows; firsts have one entry more than phases, the last the run's end."""

    lengths: tuple[int, ...]  # of a row, by phase
    full_tokens: int
    start_tokens: int
    warmup_steps: int  # 0 without batch warm-up
    first_steps: tuple[int, ...]
    first_rows: tuple[int, ...]

    @classmethod
    def of(cls, recipe: Recipe) -> Steps:
        """Count the steps and rows of a recipe's phases."""
        training, warmup = recipe.training, recipe.training.batch_warmup
        start, warmup_steps = (training.tokens_per_step, 0) if warmup is None else (warmup.start_tokens, warmup.steps)
        lengths = tuple(phase.sequence_length for phase in recipe.phases)
        first_steps = tuple(accumulate((phase.steps for phase in recipe.phases), initial=0))
        counted = cls(lengths, training.tokens_per_step, start, warmup_steps, first_steps, ())
        edges = zip(pairwise(first_steps), lengths, strict=True)
        of_phases = (counted._rows_between(first, stop, length) for (first, stop), length in edges)
        return cls(lengths, training.tokens_per_step, start, warmup_steps, first_steps, tuple(accumulate(of_phases, initial=0)))

    def phase_of(self, step: int) -> int:
        """Return the phase of a step; of the run's end the last one."""
        return min(bisect_right(self.first_steps, step), len(self.lengths)) - 1

    def rows_of(self, step: int) -> int:
        """Return how many rows a step has."""
        return self._rows_between(step, step + 1, self.lengths[self.phase_of(step)])

    def most_rows(self, phase: int) -> int:
        """Return how many rows the largest step of a phase has: its last one."""
        return self.rows_of(self.first_steps[phase + 1] - 1)

    def first_row(self, step: int) -> int:
        """Return how many rows lie before a step, or before the run's end."""
        phase = self.phase_of(step)
        return self.first_rows[phase] + self._rows_between(self.first_steps[phase], step, self.lengths[phase])

    def at_row(self, row: int) -> tuple[int, int]:
        """Return (phase, step of the run) of a row of the run."""
        phase = min(bisect_right(self.first_rows, row), len(self.lengths)) - 1
        steps = range(self.first_steps[phase], self.first_steps[phase + 1] + 1)
        return phase, steps[bisect_right(steps, row, key=self.first_row) - 1]

    def beginning_at(self, row: int) -> tuple[int, int]:
        """Return (phase, step of the run) of the first step that has no row before ``row``; may be the end of the run."""
        _, step = self.at_row(row)
        step += self.first_row(step) < row
        return bisect_right(self.first_steps, step) - 1, step

    def _rows_between(self, first: int, stop: int, length: int) -> int:
        """Return the rows of steps ``first`` to ``stop`` if all were of a phase with rows of ``length``."""
        full = max(0, stop - max(first, self.warmup_steps)) * (self.full_tokens // length)
        growing = min(stop, self.warmup_steps) - first
        if growing <= 0:
            return full
        slope, divisor = self.full_tokens - self.start_tokens, self.warmup_steps * length
        return full + floor_sum(growing, divisor, slope, self.start_tokens * self.warmup_steps + slope * first)


def floor_sum(terms: int, divisor: int, slope: int, offset: int) -> int:
    """Return the sum of floor((slope i + offset) / divisor) for i from 0 to ``terms`` - 1, all of them at least 0, in O(log divisor).

    Whole parts come out; what is left counts lattice points below a line, which are counted along the other axis, as in
    Euclid's algorithm (Graham, Knuth, Patashnik 1994, section 3.5).
    """
    total = 0
    while terms > 0:
        total += (slope // divisor) * (terms * (terms - 1) // 2) + (offset // divisor) * terms
        slope, offset = slope % divisor, offset % divisor
        highest = slope * terms + offset
        if highest < divisor:
            break
        terms, offset = divmod(highest, divisor)
        divisor, slope = slope, divisor
    return total
