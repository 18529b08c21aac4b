"""How often each corpus is drawn, as exact fractions.

Everything after this file is integer arithmetic, so that counts are the same on every machine. A
power such as 0.7 is the one place where a floating-point library could differ in the last bit from
another one; `decimal` computes it the same way everywhere.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from fractions import Fraction

# Thirty significant digits: far beyond what a row count can feel, and still cheap.
_DECIMAL = decimal.Context(prec=30)


def temperature_shares(sizes: Sequence[int], alpha: float) -> tuple[Fraction, ...]:
    """Return q_i = p_i^alpha / sum_j p_j^alpha, p_i = size_i / sum of sizes (Conneau & Lample 2019, section 3.1).

    ``alpha`` 1 draws in proportion to size, 0 draws every corpus that has anything equally. A corpus
    of size 0 has share 0. Raises ValueError where nothing is left to draw.
    """
    if any(size < 0 for size in sizes):
        raise ValueError("a corpus cannot have a negative size")
    # The scale of p cancels, so the sizes themselves are raised to the power.
    exponent = decimal.Decimal(repr(float(alpha)))
    powers = [Fraction(_DECIMAL.power(decimal.Decimal(size), exponent)) if size else Fraction(0) for size in sizes]
    return normalised(powers)


def normalised(weights: Sequence[Fraction | float | int]) -> tuple[Fraction, ...]:
    """Divide weights by their sum, exactly; raises ValueError where the sum is 0 or a weight is negative."""
    exact = [Fraction(weight) for weight in weights]
    total = sum(exact, Fraction(0))
    if total <= 0 or any(weight < 0 for weight in exact):
        raise ValueError("weights must not be negative, and one at least must be positive")
    return tuple(weight / total for weight in exact)


def in_units(weights: Sequence[Fraction | float | int], units: int) -> tuple[int, ...]:
    """Round weights to whole ``units`` that sum to exactly ``units``, by largest remainders (Hamilton's method).

    A weight of 0 stays 0. Ties go to the earlier weight. The error of each is below one unit.
    """
    exact = [share * units for share in normalised(weights)]
    whole = [int(share) for share in exact]
    missing = units - sum(whole)
    by_remainder = sorted(range(len(exact)), key=lambda index: (whole[index] - exact[index], index))
    for index in by_remainder[:missing]:
        whole[index] += 1
    return tuple(whole)
