"""What the corpora of one objective weigh in a phase; weights need not sum to 1.

A pair's fixed weight is the product of its two languages': with English on one side of every pair, pairs
are drawn in proportion to the other language's weight, and weight 0 leaves a language out on either side.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

from xlm.config.phases import FixedSampling, Objective, Phase, ProportionalSampling, TemperatureSampling, value_at
from xlm.errors import UserError, suggest
from xlm.mixing.leaves import Leaf, PhasePlans
from xlm.shards.index import ShardIndex

Weights = Mapping[int, Fraction | int]

# Thirty significant digits: far beyond what a row count can feel, and still cheap. `decimal` rounds
# exp and ln correctly, so that weights are the same on every machine.
_DECIMAL = decimal.Context(prec=30)
_SCALE = decimal.Decimal(10) ** 18


def weights_in_phase(
    phase: Phase, objective: Objective, leaves: Sequence[Leaf], plans: PhasePlans, index: ShardIndex
) -> Callable[[float], Weights]:
    """Return the weight of every leaf of an objective as a function of the fraction (0 to 1) of the phase.

    Leaves of weight 0 are left out. Raises UserError where nothing is left to draw, and for a fixed weight on a
    corpus that gives no row. UniMax is not a weight of the corpora alone; see `plateaus.py`.
    """
    sampling = phase.sampling
    if isinstance(sampling, FixedSampling):
        fixed = _fixed_weights(phase, sampling, objective, leaves, plans, index)
        return lambda fraction: fixed
    if not isinstance(sampling, TemperatureSampling | ProportionalSampling):
        raise TypeError(f"sampling of kind {sampling.kind} has no weights by size")
    sizes = {leaf: _size(sampling.unit, leaves[leaf].corpus, leaf, plans, index) for leaf in plans.leaves_of[objective]}
    sizes = {leaf: size for leaf, size in sizes.items() if size}
    if not sizes:
        corpora = ", ".join(leaves[leaf].corpus for leaf in plans.leaves_of[objective])
        raise UserError(f"phase '{phase.name}': the corpora of {objective} are all empty ({corpora}); build them with more text.")
    alpha = 1.0 if isinstance(sampling, ProportionalSampling) else sampling.alpha
    return lambda fraction: {leaf: power(size, value_at(alpha, fraction)) for leaf, size in sizes.items()}


def power(size: int, exponent: float) -> int:
    """Return size^exponent in units of 10^-18, for weights p^alpha (XLM, Conneau & Lample 2019, section 3.1).

    The scale of p cancels in q_i = p_i^alpha / sum_j p_j^alpha, so sizes themselves are raised to the power.
    """
    if exponent == 1.0:
        return size * int(_SCALE)
    return int(_DECIMAL.multiply(_DECIMAL.exp(_DECIMAL.multiply(_logarithm(size), decimal.Decimal(repr(exponent)))), _SCALE))


@lru_cache(maxsize=1 << 16)
def _logarithm(size: int) -> decimal.Decimal:
    # Two thirds of the time of a power, and the same at every plateau of a ramp.
    return _DECIMAL.ln(decimal.Decimal(size))


def _size(unit: str, corpus: str, leaf: int, plans: PhasePlans, index: ShardIndex) -> int:
    """Return a corpus's size in the recipe's unit; a corpus that gives no row at all counts as empty."""
    rows = sum(plans.variant_rows(leaf))
    if unit == "rows" or rows == 0:
        return rows
    return index.corpus(corpus).sentences if unit == "sentences" else index.tokens(corpus)


def _fixed_weights(
    phase: Phase, sampling: FixedSampling, objective: Objective, leaves: Sequence[Leaf], plans: PhasePlans, index: ShardIndex
) -> dict[int, Fraction]:
    weights: dict[int, Fraction] = {}
    for number in plans.leaves_of[objective]:
        weight = Fraction(1)
        for language in index.corpora[leaves[number].corpus].languages:
            if language not in sampling.weights:
                raise UserError(
                    f"phase '{phase.name}': sampling.weights has none for '{language}'{suggest(language, sampling.weights)}; "
                    f"add it (0 leaves it out); given are: {', '.join(sorted(sampling.weights))}."
                )
            # Written decimals are meant as they stand: 0.4 is two fifths, not the binary number nearest to it.
            weight *= Fraction(str(sampling.weights[language]))
        if weight:
            weights[number] = weight
    if not weights:
        raise UserError(f"phase '{phase.name}': the sampling weights leave nothing to draw for {objective}; give one of them more than 0.")
    for number in weights:
        if not plans.epoch_rows(number):
            raise UserError(
                f"phase '{phase.name}' draws {objective} rows of '{leaves[number].corpus}', but none fits at sequence_length "
                f"{phase.sequence_length}; leave its languages out, give them weight 0, or use longer rows."
            )
    return weights
