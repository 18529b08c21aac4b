"""The table of the topics task: natural prose beside the sentences that templates make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xlm.report.facts import RunFacts
from xlm.report.tables import Table, percent, with_interval

Json = Mapping[str, Any]
_SYSTEMS = {
    "character_floor": "char n-grams",
    "random_encoder": "random weights",
    "bag_of_aligned_embeddings": "starting embeddings",
    "chance": "chance",
}


def topic_table(facts: RunFacts) -> Table | None:
    """Accuracy of every system by language, and the probe's gain over the character floor."""
    topics: Json | None = facts.scores["tasks"].get("topics")
    if not topics:
        return None
    rows = []
    for language, entry in topics["languages"].items():
        probe, gain = entry["systems"]["probe"], entry["differences"].get("probe-character_floor") or {}
        rows.append(
            (
                language,
                with_interval(probe["accuracy"], probe["interval"]),
                *(percent(entry["systems"].get(name, {}).get("accuracy")) for name in _SYSTEMS),
                with_interval(gain.get("gain"), gain.get("interval"), signed=True),
                f"{entry['sentences']:,}",
            )
        )
    columns = ("language", "frozen probe [95 %]", *_SYSTEMS.values(), "gain over n-grams [95 %]", "articles")
    note = f"Extracts of encyclopaedia articles in {len(topics['labels'])} classes: {', '.join(topics['labels'])}. Labels in English only."
    return Table("Topics of articles, accuracy in %", columns, tuple(rows), note)
