"""The tables of a report, as rows of ready text: numbers are rounded here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xlm.report.facts import RunFacts, counted, dropped_by_reason, languages_of, pairs_by_language, text_shares, trained_shares

Json = Mapping[str, Any]
ABSENT = "–"


@dataclass(frozen=True)
class Table:
    """A titled table; the first column names the row, the others are figures unless ``words``."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    words: bool = False


def percent(value: float | None) -> str:
    """Return a score with one decimal."""
    return ABSENT if value is None else f"{value:.1f}"


def with_interval(value: float | None, interval: Sequence[float] | None, *, signed: bool = False) -> str:
    """Return ``36.2 [33.1, 39.0]``."""
    if value is None:
        return ABSENT
    text = f"{value:+.1f}" if signed else f"{value:.1f}"
    return f"{text} [{interval[0]:.1f}, {interval[1]:.1f}]" if interval else text


def marked(language: str, entry: Json) -> str:
    """Return a language with the marks of its entry: * shown in no mean, † its dev templates may be looked at."""
    return language + ("*" if entry.get("shown_only") else "") + ("†" if entry.get("dev_language") else "")


def intents_table(facts: RunFacts) -> Table | None:
    """Accuracy of every system by language, and the gain over the character floor."""
    languages, summary = languages_of(facts.scores, "intents"), facts.scores["summary"]
    if not languages:
        return None
    rows = []
    for language, entry in languages.items():
        systems = entry["systems"]
        gain = entry.get("differences", {}).get("probe-character_floor") or {}
        probe = systems.get("probe", {})
        rows.append(
            (
                marked(language, entry),
                with_interval(probe.get("accuracy"), probe.get("interval")),
                percent(probe.get("macro_f1")),
                *(percent(systems.get(name, {}).get("accuracy")) for name in _OTHER_SYSTEMS),
                with_interval(gain.get("gain"), gain.get("interval"), signed=True),
                f"{entry['sentences']:,}",
                f"{entry['templates']:,}",
            )
        )
    means = [percent(summary.get(f"intents.{name}")) for name in ("probe", *_OTHER_SYSTEMS)]
    rows.append(("mean", means[0], "", *means[1:], "", "", ""))
    if summary.get("intents.probe.without_dev") is not None:
        others = [percent(summary.get(f"intents.{name}.without_dev")) for name in ("probe", *_OTHER_SYSTEMS)]
        rows.append(("mean without †", others[0], "", *others[1:], "", "", ""))
    columns = (
        "language",
        "frozen probe [95 %]",
        "its macro-F1",
        *_OTHER_SYSTEMS.values(),
        "gain over n-grams [95 %]",
        "sentences",
        "templates",
    )
    of = ", ".join(facts.recipe.evaluation.mean_languages)
    dev = facts.recipe.evaluation.dev_languages
    chosen = " † choices of pretraining may look at its dev templates, which are not those scored here." if dev else ""
    note = f"Mean of {of}. * shown, not in the mean.{chosen} Every interval and every seed is in scores.json."
    return Table("Intents, accuracy in %", columns, tuple(rows), note)


_OTHER_SYSTEMS = {
    "finetuned": "fine-tuned",
    "character_floor": "char n-grams",
    "random_encoder": "random weights",
    "bag_of_aligned_embeddings": "starting embeddings",
    "chance": "chance",
}


def retrieval_table(facts: RunFacts) -> Table | None:
    """Top-1 retrieval by language and direction, and the floors."""
    retrieval: Json = facts.scores["tasks"].get("retrieval") or {}
    languages, summary = languages_of(facts.scores, "retrieval"), facts.scores["summary"]
    if not languages:
        return None

    def score(systems: Json, system: str, pool: str, direction: str = "mean") -> str:
        found = systems.get(system, {}).get(pool)
        return percent(found[direction] if found else None)

    rows = [
        (
            language,
            *(score(entry["systems"], "encoder", "top1_200", direction) for direction in ("en_to_xx", "xx_to_en", "mean")),
            score(entry["systems"], "encoder", "top1_2000"),
            score(entry["systems"], "bag_of_aligned_embeddings", "top1_200"),
            score(entry["systems"], "random_encoder", "top1_200"),
            f"{entry['pool']:,}",
        )
        for language, entry in languages.items()
    ]
    means = [percent(summary.get(f"retrieval.{pool}")) for pool in ("top1_200", "top1_2000")]
    rows.append(("mean", "", "", *means, "", "", ""))
    note = f"Layer: {retrieval.get('layer', 'final')}."
    for pool, missing in (retrieval.get("left_out") or {}).items():
        if missing:
            size = f"{int(pool.rpartition('_')[2]):,}"
            note += f" Not in the mean of {size}: {', '.join(f'{language} ({reason})' for language, reason in missing.items())}."
    columns = ("language", "200: from en", "200: to en", "200: mean", "2,000: mean", "starting embeddings", "random weights", "pool")
    return Table("Retrieval, right translation first, in %", columns, tuple(rows), note)


def _words(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_words(part)}" for name, part in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def language_table(facts: RunFacts) -> Table | None:
    """Text kept, and share of the text and of training, by language."""
    text, trained = text_shares(facts.shards), trained_shares(facts.scores["training"])
    tokens: Json = facts.scores["training"].get("tokens_by_language", {})
    kept: Json = facts.corpus.get("languages", {})
    pairs = pairs_by_language(facts.corpus)
    names = sorted({*text, *trained, *kept}, key=lambda language: -text.get(language, 0.0))
    rows = tuple(
        (
            language,
            *(f"{kept[language][name]:,}" if language in kept else ABSENT for name in ("documents", "characters")),
            f"{pairs[language]:,}",
            percent(text.get(language)),
            percent(trained.get(language)),
            f"{tokens[language]:,.0f}" if language in tokens else ABSENT,
        )
        for language in names
    )
    columns = ("language", "texts kept", "characters", "pairs", "% of all tokens", "% of training", "tokens seen")
    note = "A text is a string of an interface, once, or a running text; a pair counts in both of its languages."
    return Table("Languages", columns, rows, note) if rows else None


def dropped_table(facts: RunFacts) -> Table | None:
    """Texts and pairs left out, by reason."""
    reasons = dropped_by_reason(facts.corpus)
    rows = []
    for reason, languages in sorted(reasons.items(), key=lambda item: -item[1].total()):
        most = ", ".join(f"{language} {count:,}" for language, count in languages.most_common(3))
        rows.append((reason.replace("_", " "), f"{languages.total():,}", most))
    note = "By language and source in corpus/summary.json."
    return Table("Left out of the text, and why", ("reason", "texts and pairs", "mostly in"), tuple(rows), note) if rows else None


def source_table(facts: RunFacts) -> Table | None:
    """Where the text is from and under which licence."""
    if facts.manifest is None:
        return None
    rows = tuple((source.name, source.version or ABSENT, source.licence, source.homepage or ABSENT) for source in facts.manifest.sources)
    return Table("Sources", ("source", "version", "licence", "home page"), rows, words=True)


def vocabulary_table(facts: RunFacts) -> Table | None:
    """How the vocabulary serves each language."""
    rows = tuple(
        (
            row["language"],
            f"{row['pieces_per_word']:.2f}" if row["pieces_per_word"] else ABSENT,
            f"{row['pieces_per_character']:.3f}",
            f"{row['unknown_rate']:.3%}",
            f"{row['byte_rate']:.3%}",
            f"{row['vocabulary_used']:,}",
        )
        for row in facts.coverage
    )
    columns = ("language", "pieces per word", "per character", "unknown", "byte pieces", "pieces used")
    return Table("Vocabulary", columns, rows) if rows else None


def stage_table(facts: RunFacts) -> Table:
    """Time and memory by stage."""
    stages: Json = facts.scores["stages"]
    rows = tuple(
        (name.replace("_", " "), f"{stage['wall_s']:,.0f}", f"{stage['peak_memory_bytes'] / 2**30:.2f}") for name, stage in stages.items()
    )
    return Table("Cost by stage", ("stage", "seconds", "memory, GiB"), rows, "Memory is the peak of the stage's processes together.")


# Too long for a page; they stand in scores.json.
_LONG = ("versions", "evaluation_sets")


def provenance_table(facts: RunFacts) -> Table:
    """Everything that names this run: protocol, fingerprints, versions, machine."""
    scores = facts.scores
    rows: list[tuple[str, str]] = [("recipe", f"{scores['recipe']['name']}, fingerprint {scores['recipe']['fingerprint']}")]
    rows += [("precision", str(scores["training"].get("precision", ABSENT))), ("ranks", str(scores["training"].get("world_size", ABSENT)))]
    for stage, provenance in scores["provenance"].items():
        for name, value in (provenance or {}).items():
            if name not in _LONG:
                rows.append((f"{stage.replace('_', '-')}: {name.replace('_', ' ')}", _words(value)))
    rows += [(f"stage {name.replace('_', ' ')}", f"fingerprint {stage['fingerprint']}") for name, stage in scores["stages"].items()]
    rows.append(("versions", ", ".join(f"{name} {version}" for name, version in scores["versions"].items())))
    machine = scores["machine"]
    memory = f"{machine['memory_bytes'] / 2**30:.0f} GiB of memory"
    rows.append(("machine", f"{machine['system']}, {machine['architecture']}, {counted(machine['cores'], 'core')}, {memory}"))
    return Table("Provenance", ("what", "value"), tuple(rows), words=True)
