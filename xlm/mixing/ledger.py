"""The ledger: what a run will see of every language, objective and phase, and when text begins to come again.

All of it follows from the data plan, so it is known before the first step; `xlm.mixing.seen` compares it with what
training has counted. Both sides of a pair corpus count half of its tokens. A corpus is seen again from the step at which
it passes one epoch, over all phases together; where phases have rows of other lengths or layouts, an epoch is
counted in rows of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import median

from xlm.config.phases import Objective, Phase
from xlm.mixing.data_plan import DataPlan, PlannedLeaf
from xlm.mixing.first_repeats import first_repeats
from xlm.mixing.seen import Seen
from xlm.shards.index import ShardIndex

# The timeline of a run: this many stretches, with the largest languages one by one.
_STRETCHES = 60
_TIMELINE_LANGUAGES = 11
# Languages whose epochs are logged one by one while training; of more, the most and the median.
LOGGED_LANGUAGES = 32


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What one phase draws from one corpus for one objective.

    ``tokens`` are of text; ``positions`` are what the model reads, special pieces included. ``share`` is of
    the rows of the phase, ``epochs`` of this phase alone.
    """

    phase: str
    objective: Objective
    corpus: str
    languages: tuple[str, ...]
    rows: int
    tokens: int
    positions: int
    share: float
    epochs: float


@dataclass(frozen=True, slots=True)
class CorpusTotal:
    """What the whole run draws from one corpus for one objective; steps are None where it never comes to that.

    ``max_epochs`` is the cap of the last phase that draws it, a cap on this corpus in this objective;
    ``capped_from`` is the first step that a cap leaves it out of.
    """

    objective: Objective
    corpus: str
    languages: tuple[str, ...]
    rows: int
    tokens: int
    positions: int
    epochs: float
    max_epochs: float | None
    repeats_from: int | None
    capped_from: int | None


@dataclass(frozen=True, slots=True)
class LanguageTotal:
    """What the whole run draws of one language.

    ``epochs``: its tokens drawn over those of one epoch, all its corpora together, for the objective where that
    is most. ``max_epochs`` is the highest cap on one of its corpora in one objective. Steps are those of its first
    corpus that comes to it.
    """

    language: str
    tokens: int
    positions: int
    tokens_by_objective: Mapping[Objective, int]
    epochs: float
    max_epochs: float | None
    repeats_from: int | None
    capped_from: int | None


@dataclass(frozen=True, slots=True)
class Stretch:
    """What is drawn from ``first_step`` until before ``stop_step``: tokens of the run's largest languages, and of all others."""

    first_step: int
    stop_step: int
    rows_by_objective: Mapping[Objective, int]
    tokens_by_language: Mapping[str, int]
    other_tokens: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """Everything drawn: by phase and corpus, by corpus, by language (most tokens first), and over time."""

    steps: int
    entries: tuple[LedgerEntry, ...]
    corpora: tuple[CorpusTotal, ...]
    languages: tuple[LanguageTotal, ...]
    timeline: tuple[Stretch, ...]

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The objectives that are drawn, sorted."""
        return tuple(sorted({total.objective for total in self.corpora}))


def plan_ledger(plan: DataPlan, index: ShardIndex) -> Ledger:
    """Return the ledger of a whole run."""
    entries, of_leaf = _entries(plan, index)
    repeats = first_repeats(plan)
    capped: dict[int, int] = {}
    for event in plan.cap_events:
        capped[event.leaf] = min(event.step, capped.get(event.leaf, event.step))
    corpora = []
    for number, leaf in enumerate(plan.leaves):
        mine = of_leaf.get(number)
        if mine:
            corpora.append(
                CorpusTotal(
                    leaf.objective,
                    leaf.corpus,
                    leaf.languages,
                    sum(entry.rows for entry in mine),
                    sum(entry.tokens for entry in mine),
                    sum(entry.positions for entry in mine),
                    sum(entry.epochs for entry in mine),
                    _cap(plan.recipe.phases, mine),
                    repeats.get(number),
                    capped.get(number),
                )
            )
    languages = language_totals(corpora)
    timeline = _timeline(plan, [total.language for total in languages[:_TIMELINE_LANGUAGES]])
    return Ledger(plan.total_steps, entries, tuple(corpora), languages, timeline)


def cap_sentences(plan: DataPlan, most: int = 10) -> list[str]:
    """Return a line for every corpus that a cap leaves out from some step on, in order of steps; the rest in one line.

    A cap holds for a corpus in each objective: two objectives that read the same text are two lines.
    """
    events = sorted(plan.cap_events, key=lambda event: event.step)
    lines = []
    for event in events[:most]:
        leaf, phase = plan.leaves[event.leaf], plan.recipe.phases[event.phase]
        lines.append(
            f"cap: from step {event.step:,} on, {leaf.objective} draws no more of '{leaf.corpus}' "
            f"(max_epochs {getattr(phase.sampling, 'max_epochs', 0):g}, phase '{phase.name}'); its other corpora take over."
        )
    if len(events) > most:
        lines.append(f"cap: {len(events) - most:,} more, the last at step {events[-1].step:,}; pipelines/plan.py lists them.")
    return lines


class RunningLedger:
    """What has been seen after a step, as few metrics."""

    def __init__(self, plan: DataPlan) -> None:
        self._plan = plan
        self._whole = plan.planned()

    def metrics(self, step: int, seen: Seen) -> dict[str, float]:
        """Return the metrics after ``step`` steps, in which the trainer counted ``seen``.

        ``rows/<objective>``, ``objective_tokens/<objective>`` and ``tokens/<language>`` are counts. (Mulam is a language
        whose code is mlm, so tokens by objective need a name of their own.) ``epochs/<language>`` is how often a
        language comes in what the plan had drawn by then, as in `LanguageTotal`. Of more than `LOGGED_LANGUAGES`
        languages only ``epochs/most`` and ``epochs/median`` are told.
        """
        times = _times_seen(self._plan.planned(0, step), self._whole)
        epochs = {language: times.get(language, 0.0) for language in self._plan.languages}
        found = {"epochs/most": max(epochs.values()), "epochs/median": median(epochs.values())}
        if len(epochs) <= LOGGED_LANGUAGES:
            by_language = seen.tokens_by_language()
            found |= {f"epochs/{language}": value for language, value in epochs.items()}
            found |= {f"tokens/{language}": float(by_language[language]) for language in epochs}
        rows, tokens = seen.rows_by_objective(), seen.tokens_by_objective()
        for objective in sorted({leaf.objective for leaf in self._plan.leaves}):
            found |= {f"rows/{objective}": float(rows[objective]), f"objective_tokens/{objective}": float(tokens[objective])}
        return found


def _entries(plan: DataPlan, index: ShardIndex) -> tuple[tuple[LedgerEntry, ...], dict[int, list[LedgerEntry]]]:
    """Return what is drawn by phase and leaf, in one list and by leaf."""
    entries: list[LedgerEntry] = []
    of_leaf: dict[int, list[LedgerEntry]] = {}
    for number, (phase, drawn) in enumerate(zip(plan.recipe.phases, plan.planned_by_phase(), strict=True)):
        all_rows = sum(planned.rows for planned in drawn)
        for leaf, planned in enumerate(drawn):
            if planned.rows:
                plans = [
                    index.plan(planned.corpus, plan.layout(number, leaf), phase.sequence_length, variant)
                    for variant in range(index.variants)
                ]
                fill = sum(each.fill * each.rows for each in plans) / max(1, sum(each.rows for each in plans))
                entry = LedgerEntry(
                    phase.name,
                    planned.objective,
                    planned.corpus,
                    planned.languages,
                    planned.rows,
                    planned.tokens,
                    round(planned.rows * phase.sequence_length * fill),
                    planned.rows / all_rows,
                    planned.epochs,
                )
                entries.append(entry)
                of_leaf.setdefault(leaf, []).append(entry)
    return tuple(entries), of_leaf


def _cap(phases: Sequence[Phase], entries: Sequence[LedgerEntry]) -> float | None:
    by_name = {phase.name: phase for phase in phases}
    cap: float | None = getattr(by_name[entries[-1].phase].sampling, "max_epochs", None)
    return cap


def language_totals(corpora: Sequence[CorpusTotal]) -> tuple[LanguageTotal, ...]:
    """Return the totals of languages from those of corpora, most tokens first."""
    seen = _times_seen(corpora, corpora)
    of_language: dict[str, list[CorpusTotal]] = {}
    for corpus in corpora:
        for language in corpus.languages:
            of_language.setdefault(language, []).append(corpus)
    totals = []
    for language, mine in of_language.items():
        by_objective: Counter[Objective] = Counter()
        for corpus in mine:
            by_objective[corpus.objective] += corpus.tokens // len(corpus.languages)
        totals.append(
            LanguageTotal(
                language,
                by_objective.total(),
                sum(corpus.positions // len(corpus.languages) for corpus in mine),
                dict(by_objective),
                seen.get(language, 0.0),
                max((corpus.max_epochs for corpus in mine if corpus.max_epochs is not None), default=None),
                min((corpus.repeats_from for corpus in mine if corpus.repeats_from is not None), default=None),
                min((corpus.capped_from for corpus in mine if corpus.capped_from is not None), default=None),
            )
        )
    return tuple(sorted(totals, key=lambda total: (-total.tokens, total.language)))


def _timeline(plan: DataPlan, languages: Sequence[str]) -> tuple[Stretch, ...]:
    """Cut the run into stretches of about the same number of steps, none over two phases."""
    steps = [0, *accumulate(phase.steps for phase in plan.recipe.phases)]
    edges = sorted({*steps, *(round(plan.total_steps * number / _STRETCHES) for number in range(_STRETCHES))})
    stretches = []
    for first, stop in pairwise(edges):
        rows: Counter[Objective] = Counter()
        tokens: Counter[str] = Counter()
        for part in plan.planned(first, stop):
            rows[part.objective] += part.rows
            for language in part.languages:
                tokens[language] += part.tokens // len(part.languages)
        named = {language: tokens[language] for language in languages}
        stretches.append(Stretch(first, stop, dict(rows), named, tokens.total() - sum(named.values())))
    return tuple(stretches)


def _times_seen(drawn: Sequence[CorpusTotal | PlannedLeaf], whole: Sequence[CorpusTotal | PlannedLeaf]) -> dict[str, float]:
    """Return by language how often its text is in ``drawn``, for the objective where that is most.

    The epochs of its corpora count by the tokens of one. Those are taken from the ``whole`` run, which has the same
    corpora in the same order, so that the figure never falls when a corpus gives its first row.
    """
    tokens: dict[tuple[str, Objective], float] = {}
    of_an_epoch: dict[tuple[str, Objective], float] = {}
    for part, of_run in zip(drawn, whole, strict=True):
        for language in part.languages if of_run.tokens else ():
            key, epoch_tokens = (language, part.objective), of_run.tokens / of_run.epochs
            tokens[key] = tokens.get(key, 0.0) + part.epochs * epoch_tokens
            of_an_epoch[key] = of_an_epoch.get(key, 0.0) + epoch_tokens
    seen: dict[str, float] = {}
    for (language, objective), count in tokens.items():
        seen[language] = max(seen.get(language, 0.0), count / of_an_epoch[language, objective])
    return seen
