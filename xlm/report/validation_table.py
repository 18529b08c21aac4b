"""The last validation of a training, as a table: loss and accuracy on held-out rows, by language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xlm.report.tables import ABSENT, Table

_OBJECTIVES = ("mlm", "tlm")
_PREFIX = "validation"


def validation_table(validation: Mapping[str, float], languages: Sequence[str]) -> Table | None:
    """Return a row a language and one over all, or None where nothing was validated.

    ``validation`` has the metrics of `xlm.training.validation`: losses in nats a prediction, accuracies as shares of 1.
    """
    if f"{_PREFIX}/loss" not in validation:
        return None
    objectives = [objective for objective in _OBJECTIVES if f"{_PREFIX}/{objective}" in validation]

    def cells(suffix: str) -> tuple[str, ...]:
        found: list[str] = []
        for objective in objectives:
            loss = validation.get(f"{_PREFIX}/{objective}{suffix}")
            accuracy = validation.get(f"{_PREFIX}/accuracy/{objective}{suffix}")
            found += [ABSENT if loss is None else f"{loss:.3f}", ABSENT if accuracy is None else f"{100 * accuracy:.1f}"]
        return tuple(found)

    seen = [language for language in languages if any(f"{_PREFIX}/{objective}/{language}" in validation for objective in objectives)]
    rows = [*((language, *cells(f"/{language}")) for language in seen), ("all", *cells(""))]
    heads = [head for objective in objectives for head in (f"{objective.upper()} loss", f"{objective.upper()} accuracy, %")]
    over_all = validation[f"{_PREFIX}/loss"]
    note = f"Rows with text that training never read, masked the same way each time; loss in nats, {over_all:.3f} over all."
    return Table("Held-out rows after the last step", ("language", *heads), tuple(rows), note)
