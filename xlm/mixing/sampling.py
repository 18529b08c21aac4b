"""UniMax: as equal as possible, and no corpus more often than it may be seen.

All other kinds of sampling are weights of the corpora alone; this one depends on how many rows are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def unimax_shares(capacities: Sequence[Fraction | int], budget: Fraction | int) -> tuple[Fraction, ...]:
    """Return p = U / sum of U (UniMax, Chung et al. 2023, algorithm 1).

    ``capacities`` are the rows (or tokens) that each corpus can still give, in the paper N * c_i: size times
    epochs. From the smallest corpus to the largest, U_i = min(what is left of the budget / corpora left,
    capacity_i). Raises ValueError where the budget is above the sum of the capacities, or nothing is to be drawn.
    """
    if any(capacity < 0 for capacity in capacities) or budget <= 0:
        raise ValueError("capacities must not be negative, and the budget must be positive")
    largest_budget = sum(capacities)
    if budget > largest_budget:
        raise ValueError(
            f"a budget of {float(budget):,.0f} is more than all corpora can give; the largest possible is {float(largest_budget):,.0f}"
        )
    amounts = [Fraction(0)] * len(capacities)
    remaining = Fraction(budget)
    ascending = sorted(range(len(capacities)), key=lambda number: capacities[number])
    for done, number in enumerate(ascending):
        amounts[number] = min(remaining / (len(capacities) - done), Fraction(capacities[number]))
        remaining -= amounts[number]
    return tuple(amount / Fraction(budget) for amount in amounts)
