"""What a run has been trained on, counted from its batches, and whether that is what its plan says.

The counts are the trainer's (`xlm.training.statistics`) and know nothing of the plan: a row that a loader
loses or gives twice shows as a difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from xlm.config.phases import Objective
from xlm.mixing.data_plan import DataPlan


@dataclass(frozen=True, slots=True)
class Seen:
    """Tokens, special pieces among them, and rows since step 0; what never occurred is left out."""

    tokens: Mapping[tuple[str, Objective, str], int]  # (phase, objective, language)
    rows: Mapping[tuple[str, Objective], int]  # (phase, objective)

    @property
    def all_tokens(self) -> int:
        """All tokens seen."""
        return sum(self.tokens.values())

    def tokens_by_language(self) -> Counter[str]:
        """Return tokens by language, over phases and objectives."""
        found: Counter[str] = Counter()
        for (_, _, language), count in self.tokens.items():
            found[language] += count
        return found

    def tokens_by_objective(self) -> Counter[Objective]:
        """Return tokens by objective, over phases and languages."""
        found: Counter[Objective] = Counter()
        for (_, objective, _), count in self.tokens.items():
            found[objective] += count
        return found

    def rows_by_objective(self) -> Counter[Objective]:
        """Return rows by objective, over phases."""
        found: Counter[Objective] = Counter()
        for (_, objective), count in self.rows.items():
            found[objective] += count
        return found


def planned_rows(plan: DataPlan, step: int) -> dict[tuple[str, Objective], int]:
    """Return the rows by (phase, objective) of the steps before ``step``; what has none is left out."""
    rows: Counter[tuple[str, Objective]] = Counter()
    edges = [0, *accumulate(phase.steps for phase in plan.recipe.phases)]
    for phase, (first, stop) in zip(plan.recipe.phases, pairwise(edges), strict=True):
        for part in plan.planned(first, min(stop, step)) if step > first else ():
            rows[phase.name, part.objective] += part.rows
    return dict(+rows)


def unlike_plan(plan: DataPlan, step: int, seen: Seen) -> str | None:
    """Return a sentence where the rows seen before ``step`` are not as many as planned, else None."""
    planned = planned_rows(plan, step)
    unlike = [key for key in sorted({*planned, *seen.rows}) if planned.get(key, 0) != seen.rows.get(key, 0)]
    if not unlike:
        return None
    phase, objective = unlike[0]
    more = f" ({len(unlike) - 1:,} more differences of this kind)" if unlike[1:] else ""
    return (
        f"by step {step:,} the model was trained on {seen.rows.get(unlike[0], 0):,} rows of {objective} in phase '{phase}', but the data "
        f"plan has {planned.get(unlike[0], 0):,}{more}; rows were lost or came twice on the way from the plan to the model, or the code "
        "that plans changed since this run was started"
    )


def seen_table(plan: DataPlan, step: int, seen: Seen) -> dict[str, dict[str, dict[str, Any]]]:
    """Return as JSON, by phase and objective, rows seen and planned before ``step``, and the tokens seen, by language too."""
    planned = planned_rows(plan, step)
    table: dict[str, dict[str, dict[str, Any]]] = {}
    for phase in (each.name for each in plan.recipe.phases):
        for objective in sorted(name for where, name in {*planned, *seen.rows} if where == phase):
            cell = phase, objective
            tokens = {language: count for (*where, language), count in seen.tokens.items() if tuple(where) == cell}
            table.setdefault(phase, {})[objective] = {
                "rows": seen.rows.get(cell, 0),
                "planned_rows": planned.get(cell, 0),
                "tokens": sum(tokens.values()),
                "tokens_by_language": tokens,
            }
    return table
