"""The tables about code-switching: English test sentences that mix, and English training sentences that did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xlm.report.facts import RunFacts, languages_of
from xlm.report.tables import Table, marked, percent, with_interval

Json = Mapping[str, Any]
FLOOR, SWITCHED_FLOOR = "character_floor", "code_switched_character_floor"
SWITCHED = "code_switched_training"
_SYSTEMS = {
    "probe": "frozen probe",
    FLOOR: "char n-grams",
    SWITCHED: "probe, switched training",
    SWITCHED_FLOOR: "char n-grams, switched training",
}
_FLOOR_OF = {"probe": FLOOR, SWITCHED: SWITCHED_FLOOR}


def code_switching_table(facts: RunFacts) -> Table | None:
    """Accuracy on code-switched English test sentences by language and rate."""
    scores: Json = facts.scores["tasks"].get("code_switching") or {}
    languages = languages_of(facts.scores, "code_switching")
    if not languages:
        return None
    english: Json = scores["english"]["systems"]
    systems = {name: title for name, title in _SYSTEMS.items() if name in english}
    rows = [("nothing (English)", *(percent(english[name]["accuracy"]) for name in systems), "0 %", "0.0", "", "")]
    for language, rates in languages.items():
        for rate, entry in rates.items():
            accuracy = (percent(entry["systems"].get(name, {}).get("accuracy")) for name in systems)
            mixed = (f"{entry['realised_share']:.0f} %", f"{entry['mean_cmi']:.1f}", f"{entry['sentences']:,}", f"{entry['unswitched']:,}")
            rows.append((f"{language} at {float(rate):.0%}", *accuracy, *mixed))
    columns = ("words switched into", *systems.values(), "words really switched", "mean CMI", "sentences", "unswitched")
    note = "A word without an entry in the dictionary's test half stays English: that is why less is switched than asked for."
    covered = ", ".join(f"{language} {entry['coverage']:.0f} %" for language, entry in scores.get("lexicon", {}).items())
    note += f" The half covers of the test sentences' words: {covered}." if covered else ""
    return Table("Code-switched intents, accuracy in %", columns, tuple(rows), note)


def bucket_table(facts: RunFacts) -> Table | None:
    """Accuracy by how mixed the sentences are, and the gain over the floor where there are sentences enough to test it."""
    buckets = [bucket for bucket in (facts.scores["tasks"].get("code_switching") or {}).get("cmi_buckets", []) if bucket["sentences"]]
    if not buckets:
        return None
    systems = {name: title for name, title in _SYSTEMS.items() if name in buckets[0]}
    rows = []
    for bucket in buckets:
        differences: Json = bucket.get("differences") or {}
        found = [differences.get(f"{name}-{floor}") or {} for name, floor in _FLOOR_OF.items() if name in systems]
        gains = [with_interval(gain.get("gain"), gain.get("interval"), signed=True) for gain in found]
        mixed = f"{bucket['low']:g} to {bucket['high']:g}"
        rows.append((mixed, *(percent(bucket[name]) for name in systems), *gains, f"{bucket['sentences']:,}"))
    gained = [f"gain of {systems[name]} [95 %]" for name in _FLOOR_OF if name in systems]
    note = (
        "Over all languages and rates. Gains are over the char n-grams that were trained on the same text, and tested where a bucket has "
        "200 sentences or more."
    )
    return Table("Code-switched intents by code-mixing index", ("CMI", *systems.values(), *gained, "sentences"), tuple(rows), note)


def switched_training_table(facts: RunFacts) -> Table | None:
    """Zero-shot accuracy with and without code-switched copies of the English training sentences."""
    intents: Json = facts.scores["tasks"].get("intents") or {}
    record: Json | None = intents.get("code_switched_training")
    if record is None:
        return None
    names = ("probe", SWITCHED, "finetuned", "code_switched_finetuning", FLOOR, SWITCHED_FLOOR)
    rows = []
    for language, entry in intents["languages"].items():
        accuracy = (percent(entry["systems"].get(name, {}).get("accuracy")) for name in names)
        gain: Json = entry.get("differences", {}).get(f"{SWITCHED}-probe") or {}
        rows.append((marked(language, entry), *accuracy, with_interval(gain.get("gain"), gain.get("interval"), signed=True)))
    means = (percent(facts.scores["summary"].get(f"intents.{name}")) for name in names)
    gain = intents.get("mean_differences", {}).get(f"{SWITCHED}-probe") or {}
    rows.append(("mean", *means, with_interval(gain.get("gain"), gain.get("interval"), signed=True)))
    titles = ("frozen probe", "fine-tuned", "char n-grams")
    columns = ("language", *(f"{title}{more}" for title in titles for more in ("", ", switched")), "gain of the probe [95 %]")
    note = (
        f"Switched: trained on English with {record['realised_share']:.0f} % of the words replaced by translations as well "
        f"({record['copies']} further copies), from the half of the dictionary that no code-switched test uses."
    )
    return Table("Intents with code-switched training, accuracy in %", columns, tuple(rows), note)
