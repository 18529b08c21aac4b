"""The leaves of the data plan: every (objective, corpus) of a recipe, and what each weighs in a phase.

A leaf's weight is its objective's share times its corpus's share among the corpora that the phase draws
from for that objective. A pair's fixed weight is the product of its two languages': with English on one
side of every pair, pairs are drawn in proportion to the other language's weight, and weight 0 leaves a
language out on either side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from xlm.config.phases import FixedSampling, Objective, Phase, TemperatureSampling
from xlm.errors import UserError, suggest
from xlm.mixing.sampling import normalised, temperature_shares
from xlm.shards.index import ShardIndex
from xlm.shards.plan_requests import phase_corpora, requested_plans


@dataclass(frozen=True, slots=True)
class Leaf:
    """A corpus drawn for an objective."""

    objective: Objective
    corpus: str
    languages: tuple[str, ...]


def plan_leaves(phases: Sequence[Phase], index: ShardIndex) -> tuple[Leaf, ...]:
    """Return every leaf that a phase draws from, sorted; raises UserError for languages that the corpora lack."""
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
    """Return the objectives that a phase draws rows for: those whose share is above 0."""
    return [objective for objective, share in phase.objectives.items() if share.share > 0]


def phase_weights(phase: Phase, leaves: Sequence[Leaf], index: ShardIndex) -> list[Fraction]:
    """Return the weight of every leaf in a phase: [leaves], summing to 1, 0 where the phase does not draw from it."""
    documents, pairs = _names(index)
    place = {(leaf.objective, leaf.corpus): number for number, leaf in enumerate(leaves)}
    objectives = drawn_objectives(phase)
    # Written decimals are meant as they stand: 0.4 is two fifths, not the binary number nearest to it.
    shares = normalised([Fraction(str(phase.objectives[objective].share)) for objective in objectives])
    weights = [Fraction(0)] * len(leaves)
    for objective, share in zip(objectives, shares, strict=True):
        corpora = phase_corpora(phase, objective, documents=documents, pairs=pairs)
        for corpus, of_corpus in zip(corpora, _corpus_shares(phase, objective, corpora, index), strict=True):
            weights[place[objective, corpus]] = share * of_corpus
    return weights


def _corpus_shares(phase: Phase, objective: Objective, corpora: Sequence[str], index: ShardIndex) -> tuple[Fraction, ...]:
    sampling = phase.sampling
    if isinstance(sampling, FixedSampling):
        weights = [_fixed_weight(phase, sampling, corpus, index) for corpus in corpora]
        if not any(weights):
            raise UserError(
                f"phase '{phase.name}': the sampling weights leave nothing to draw for {objective}; give one of them more than 0."
            )
        return normalised(weights)
    sizes = [_size(sampling, phase, objective, corpus, index) for corpus in corpora]
    if not any(sizes):
        raise UserError(
            f"phase '{phase.name}': the corpora of {objective} are all empty ({', '.join(corpora)}); build them with more text."
        )
    return temperature_shares(sizes, sampling.alpha)


def _size(sampling: TemperatureSampling, phase: Phase, objective: Objective, corpus: str, index: ShardIndex) -> int:
    """Return a corpus's size in the recipe's unit; a corpus that gives no row at all counts as empty."""
    rows = sum(index.rows(corpus, objective, phase.sequence_length, variant) for variant in range(index.variants))
    if sampling.unit == "rows" or rows == 0:
        return rows
    return index.tokens(corpus)


def _fixed_weight(phase: Phase, sampling: FixedSampling, corpus: str, index: ShardIndex) -> Fraction:
    weight = Fraction(1)
    for language in index.corpora[corpus].languages:
        if language not in sampling.weights:
            raise UserError(
                f"phase '{phase.name}': sampling.weights has none for '{language}'{suggest(language, sampling.weights)}; "
                f"add it (0 leaves it out); given are: {', '.join(sorted(sampling.weights))}."
            )
        weight *= Fraction(str(sampling.weights[language]))
    return weight


def _names(index: ShardIndex) -> tuple[list[str], list[str]]:
    return [entry.name for entry in index.of_kind("monolingual")], [entry.name for entry in index.of_kind("pair")]
