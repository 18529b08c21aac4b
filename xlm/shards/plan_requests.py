"""Which row plans a recipe asks for, checked against what the corpus has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xlm.config.phases import PAIR_OBJECTIVES, Objective, Phase
from xlm.corpora.documents import split_pair_name
from xlm.errors import UserError, suggest
from xlm.shards.layouts import Layout, layout_of


@dataclass(frozen=True, order=True)
class PlanRequest:
    """Rows of one corpus in one layout at one sequence length."""

    corpus: str
    layout: Layout
    length: int


def requested_plans(phases: Iterable[Phase], *, documents: Sequence[str], pairs: Sequence[str]) -> list[PlanRequest]:
    """Return the plans that the phases need, sorted, each once; an objective that is never drawn needs none.

    ``documents`` are the languages that have monolingual text, ``pairs`` the names of the pair corpora. A
    phase with `languages: all` takes what there is. Raises UserError for a language that the corpus
    lacks, and for an objective that no corpus of the phase can serve.
    """
    requests: set[PlanRequest] = set()
    for phase in phases:
        _check_languages(phase, documents, pairs)
        for objective, options in phase.objectives.items():
            if not options.ever_drawn:
                continue
            corpora = phase_corpora(phase, objective, documents=documents, pairs=pairs)
            if not corpora:
                kind = "pairs" if objective in PAIR_OBJECTIVES else "documents"
                raise UserError(
                    f"phase '{phase.name}' asks for {objective}, but the corpus has no {kind} in its languages; "
                    f"available {kind}: {_listed(pairs if objective in PAIR_OBJECTIVES else documents)}."
                )
            layout = layout_of(objective, options)
            requests.update(PlanRequest(corpus, layout, phase.sequence_length) for corpus in corpora)
    return sorted(requests)


def phase_corpora(phase: Phase, objective: Objective, *, documents: Sequence[str], pairs: Sequence[str]) -> list[str]:
    """Return the corpora that an objective of a phase draws from: its languages, or pairs of two of them."""
    wanted = None if phase.languages == "all" else set(phase.languages)
    if objective in PAIR_OBJECTIVES:
        return [name for name in sorted(pairs) if wanted is None or wanted.issuperset(split_pair_name(name))]
    return [language for language in sorted(documents) if wanted is None or language in wanted]


def _check_languages(phase: Phase, documents: Sequence[str], pairs: Sequence[str]) -> None:
    if phase.languages == "all":
        return
    available: set[str] = set()
    for objective, options in phase.objectives.items():
        if options.ever_drawn:
            of_pairs = objective in PAIR_OBJECTIVES
            available.update((language for name in pairs for language in split_pair_name(name)) if of_pairs else documents)
    for language in phase.languages:
        if language not in available:
            raise UserError(
                f"phase '{phase.name}' asks for language '{language}', which the corpus lacks"
                f"{suggest(language, available)}; it has: {_listed(sorted(available))}."
            )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
