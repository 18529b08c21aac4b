"""Counts of what was left out, by language, source and reason (promise 6: nothing is lost silently)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

Nested = dict[str, dict[str, dict[str, int]]]


class DropCounts:
    """Count dropped texts and pairs; a pair counts under its target language."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def add(self, language: str, source: str, reason: str, amount: int = 1) -> None:
        """Count ``amount`` items of ``source`` in ``language`` as dropped for ``reason``."""
        if amount:
            self._counts[language, source, reason] += amount

    def merge(self, nested: Mapping[str, Mapping[str, Mapping[str, int]]]) -> None:
        """Add counts that another stage wrote with `nested`."""
        for language, sources in nested.items():
            for source, reasons in sources.items():
                for reason, amount in reasons.items():
                    self.add(language, source, reason, amount)

    def nested(self) -> Nested:
        """Return ``{language: {source: {reason: count}}}``, ready for JSON."""
        result: Nested = {}
        for (language, source, reason), amount in sorted(self._counts.items()):
            result.setdefault(language, {}).setdefault(source, {})[reason] = amount
        return result

    def by_reason(self, languages: Iterable[str] | None = None) -> Counter[str]:
        """Return counts by reason over all sources, in the given languages or in all."""
        wanted = set(languages) if languages is not None else None
        result: Counter[str] = Counter()
        for (language, _, reason), amount in self._counts.items():
            if wanted is None or language in wanted:
                result[reason] += amount
        return result

    def total(self) -> int:
        """Return how many items were dropped altogether."""
        return self._counts.total()
