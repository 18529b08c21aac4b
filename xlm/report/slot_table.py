"""The table of the slot task: F1 over entities, zero-shot as the intents are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xlm.report.facts import RunFacts
from xlm.report.tables import Table, marked, percent, with_interval

Json = Mapping[str, Any]
_SYSTEMS = {"finetuned": "fine-tuned", "character_floor": "char n-grams", "random_encoder": "random weights"}


def slot_table(facts: RunFacts) -> Table | None:
    """Entity F1 of every system by language, and the probe's gain over the character floor."""
    slots: Json | None = facts.scores["tasks"].get("slots")
    if not slots:
        return None
    rows = []
    shown_only = facts.recipe.tasks.intents.shown_only_languages if facts.recipe.tasks else ()
    dev_languages = facts.recipe.evaluation.dev_languages
    for language, entry in slots["languages"].items():
        probe, gain = entry["systems"]["probe"], entry["differences"].get("probe-character_floor") or {}
        rows.append(
            (
                marked(language, {"shown_only": language in shown_only, "dev_language": language in dev_languages}),
                with_interval(probe["f1"], probe["interval"]),
                percent(probe["strict_f1"]),
                *(percent(entry["systems"].get(name, {}).get("f1")) for name in _SYSTEMS),
                with_interval(gain.get("gain"), gain.get("interval"), signed=True),
                f"{entry['sentences']:,}",
                f"{entry['entities']:,}",
            )
        )
    means = [percent(facts.scores["summary"].get(f"slots.{name}")) for name in ("probe", *_SYSTEMS)]
    gain = slots.get("mean_differences", {}).get("probe-character_floor") or {}
    rows.append(("mean", means[0], "", *means[1:], with_interval(gain.get("gain"), gain.get("interval"), signed=True), "", ""))
    columns = (
        "language",
        "frozen probe [95 %]",
        "strict",
        *_SYSTEMS.values(),
        "gain over n-grams [95 %]",
        "sentences",
        "slots",
    )
    note = (
        "F1 over whole slots, right only with both ends and the name, as seqeval has it; strict: a slot must begin with B-. The sentences "
        "are those of the intents. What fills a slot (rooms, devices, messages) is another in training than in the tests."
    )
    return Table("Slots, F1 in %", columns, tuple(rows), note)
