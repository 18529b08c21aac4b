"""What a report says in words, and the table that ends a run in the terminal.

Sentences are chosen by the numbers: a result that is not there is not claimed, and what the scores
cannot show stands beside what they do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xlm.report.facts import RunFacts, counted, languages_of
from xlm.report.summary import SCORES, read_json
from xlm.report.tables import marked

Json = Mapping[str, Any]
REPORT = "report.html"


def what_was_trained(facts: RunFacts) -> str:
    """Return one paragraph on the model, its objectives and its size."""
    model, training = facts.recipe.model, facts.scores["training"]
    objectives = sorted({name for phase in facts.recipe.phases for name in phase.objectives})
    tokens = sum(training.get("tokens_by_language", {}).values())
    seen = f" It saw {_count(tokens)} tokens" if tokens else " It ran"
    speed = training.get("tokens_per_second")
    at = f", at {speed:,.0f} tokens a second" if speed else ""
    return (
        f"A text encoder of {counted(model.layers, 'layer')}, {model.width} wide, with one vocabulary for all languages, was trained "
        f"from scratch with {_listed([_OBJECTIVES[name] for name in objectives])}."
        f"{seen} in {counted(facts.recipe.total_steps, 'step')}{at}."
    )


_OBJECTIVES = {
    "clm": "each word to guess from those before it (CLM)",
    "contrastive": "a contrastive loss that brings translations together",
    "mlm": "masked words to guess (MLM)",
    "nsp": "whether two texts follow each other (NSP)",
    "rtd": "words that a small generator replaced to find (RTD)",
    "sop": "the order of two texts to tell (SOP)",
    "tlm": "masked words to guess across a translation (TLM)",
}


def on_what(facts: RunFacts) -> str:
    """Return one paragraph on the text."""
    languages = sorted(facts.corpus.get("languages", {})) or sorted(facts.scores["training"].get("tokens_by_language", {}))
    names = [source.name for source in facts.manifest.text_sources] if facts.manifest else []
    sources = f" from {_listed(names)}" if names else ""
    dropped = sum(count for counts in facts.corpus.get("dropped", {}).values() for reasons in counts.values() for count in reasons.values())
    out = f" {dropped:,} texts and pairs were left out, each counted below by reason." if dropped else ""
    if dropped == 1:
        out = " One text or pair was left out, counted below by reason."
    kept_out = " Text of the test sets, and near copies of it, was kept out of training." if facts.recipe.tasks else ""
    return f"The text covers {counted(len(languages), 'language')} ({', '.join(languages)}){sources}.{out}{kept_out}"


def what_it_shows(facts: RunFacts) -> str:
    """Return one paragraph on the scores against their floors."""
    summary = facts.scores["summary"]
    parts: list[str] = []
    probe, floor = summary.get("intents.probe"), summary.get("intents.character_floor")
    means = facts.recipe.evaluation.mean_languages
    of = f"{'mean of ' if len(means) > 1 else ''}{', '.join(means)}"
    if probe is not None and floor is not None:
        parts.append(
            f"A classifier that saw labelled sentences in English only names the right intent of a sentence in another language in "
            f"{probe:.1f} % of cases ({of}); the same English sentences give a model of character n-grams, which "
            f"needs no pretraining, {floor:.1f} %."
        )
        parts.append(_reading_sentence(facts))
        parts.append(_gains_sentence(facts))
        parts.append(_chance_sentence(facts))
        parts.append(_start_sentence(facts))
        parts.append(_switched_sentence(facts))
    top1 = summary.get("retrieval.top1_200")
    if top1 is not None:
        parts.append(_retrieval_sentence(facts, top1))
    return " ".join(part for part in parts if part) or "This run was not scored: its recipe declares no tasks."


def _reading_sentence(facts: RunFacts) -> str:
    """Say what the classifier reads, where that is more than the last layer as it is."""
    evaluation = facts.recipe.evaluation
    joined, whitened = evaluation.layers == "joined", evaluation.whitening is not None
    if not joined and not whitened:
        return ""
    states = "the states of every layer side by side" if joined else "the encoder's states"
    less = ", scaled down in the directions in which sentences of pretraining text differ from their translations" if whitened else ""
    return f"It reads {states}{less}; so do the classifiers of the floors that have vectors."


def _gains_sentence(facts: RunFacts) -> str:
    languages = languages_of(facts.scores, "intents")
    means = [language for language in facts.recipe.evaluation.mean_languages if language in languages]
    unclear = [
        language
        for language in means
        if not _above_chance(languages[language])
        or not all(_above_zero(languages[language], f"probe-{floor}") for floor in ("character_floor", "random_encoder"))
    ]
    if not means:
        return ""
    mean = facts.scores["tasks"]["intents"].get("mean_differences", {}).get("probe-character_floor")
    points = f"The difference is {mean['gain']:+.1f} points [{mean['interval'][0]:.1f}, {mean['interval'][1]:.1f}]. " if mean else ""
    clear = (
        f"{points}The gain over that floor, and over the same encoder with random weights, "
        "is clear (95 % interval above 0, accuracy above chance) in "
    )
    if not unclear:
        return f"{clear}all {len(means)}." if len(means) > 1 else f"{clear}{means[0]}."
    return f"{clear}{len(means) - len(unclear)} of {len(means)}; not in {_listed(unclear)}."


def _chance_sentence(facts: RunFacts) -> str:
    """Name the languages in which always giving one label would do as well: there the floors alone would flatter."""
    below = [language for language, entry in languages_of(facts.scores, "intents").items() if not _above_chance(entry)]
    return f"It is not above chance, which is always the most frequent English label, in {_listed(below)}." if below else ""


def _retrieval_sentence(facts: RunFacts, top1: float) -> str:
    """Say how often the right translation comes first, and how often without any training."""
    sentence = f"Among 200 candidate translations it ranks the right one first in {top1:.1f} % of cases"
    # Over the languages that the encoder's mean is over, or not at all: two means of other languages compare nothing.
    systems = [entry["systems"] for entry in languages_of(facts.scores, "retrieval").values()]
    starts = [each.get("bag_of_aligned_embeddings", {}).get("top1_200") for each in systems if each.get("encoder", {}).get("top1_200")]
    if not starts or None in starts:
        return f"{sentence}."
    start = sum(each["mean"] for each in starts) / len(starts)
    return (
        f"{sentence}; the aligned embeddings that training starts from do so in {start:.1f} % by themselves, "
        f"so training changes that by {top1 - start:+.1f} points."
    )


def _start_sentence(facts: RunFacts) -> str:
    """Say how much the initialisation knew before training, so that nobody gives training the credit for it."""
    start = facts.scores["summary"].get("intents.bag_of_aligned_embeddings")
    added = facts.scores["tasks"]["intents"].get("mean_differences", {}).get("probe-bag_of_aligned_embeddings")
    if start is None or added is None:
        return ""
    low, high = added["interval"]
    return (
        f"The aligned embeddings that training starts from, averaged over a sentence, give {start:.1f} % by themselves; "
        f"training changes that by {added['gain']:+.1f} points [{low:.1f}, {high:.1f}]."
    )


def _switched_sentence(facts: RunFacts) -> str:
    """Say what a dictionary adds on top: words of the English training sentences switched by half of it."""
    switched = facts.scores["summary"].get("intents.code_switched_training")
    gain = facts.scores["tasks"]["intents"].get("mean_differences", {}).get("code_switched_training-probe")
    if switched is None or gain is None:
        return ""
    low, high = gain["interval"]
    return (
        f"With words of the English training sentences switched by half of a dictionary as well it is {switched:.1f} % "
        f"({gain['gain']:+.1f} points [{low:.1f}, {high:.1f}])."
    )


def _above_zero(language: Json, difference: str) -> bool:
    interval = (language.get("differences", {}).get(difference) or {}).get("interval")
    return bool(interval and interval[0] > 0)


def _above_chance(language: Json) -> bool:
    """Whether the probe beats chance: by the interval of the difference where there is one, else by the means."""
    if "probe-chance" in language.get("differences", {}):
        return _above_zero(language, "probe-chance")
    systems = language["systems"]
    probe, chance = (systems.get(name, {}).get("accuracy") for name in ("probe", "chance"))
    return probe is None or chance is None or bool(probe > chance)


def what_it_does_not_show(facts: RunFacts) -> str:
    """Return one paragraph on the limits that the reader must keep in mind."""
    if facts.recipe.tasks is None:
        return (
            "One pretraining run is behind every figure, so nothing here says how a second would differ. Losses are of the text that "
            "was trained on, but for held-out rows where some are shown: they say nothing about what the encoder is good for, in any "
            "language."
        )
    seeds = facts.recipe.evaluation.seeds
    shown_only = facts.recipe.tasks.intents.shown_only_languages
    vary = f"the {len(seeds)} seeds vary" if len(seeds) > 1 else "the one seed decides"
    text = (
        "One pretraining run is behind every figure, so the intervals say how sure the test is, not how a second training would "
        f"differ; {vary} what follows pretraining only. "
        "The sentences of the intent task are generated from templates in one domain, and the text is mostly short interface "
        "strings: nothing here speaks about long documents, other domains or generation."
    )
    for system, languages in ((facts.scores["tasks"].get("intents") or {}).get("collapsed") or {}).items():
        text += f" Of {system.replace('_', ' ')}, some seeds give nearly every sentence the same label in {_listed(sorted(languages))}."
    if shown_only:
        text += f" Shown, but in no mean, because they have too few intents or too little text: {_listed(shown_only)}."
    return text


def score_rows(scores: Json) -> list[tuple[str, dict[str, float | None]]]:
    """Return per language the headline scores in percent: intents by system, and retrieval at 200 candidates."""
    intents = languages_of(scores, "intents")
    retrieval = languages_of(scores, "retrieval")
    rows: list[tuple[str, dict[str, float | None]]] = []
    for language in [*intents, *(code for code in retrieval if code not in intents)]:
        systems = intents.get(language, {}).get("systems", {})
        found: dict[str, float | None] = {name: systems.get(name, {}).get("accuracy") for name in COLUMNS if name != "retrieval"}
        top1 = retrieval.get(language, {}).get("systems", {}).get("encoder", {}).get("top1_200")
        found["retrieval"] = top1["mean"] if top1 else None
        rows.append((marked(language, intents.get(language, {})), found))
    return rows


COLUMNS = {
    "probe": "probe",
    "code_switched_training": "switched",
    "finetuned": "fine-tuned",
    "bag_of_aligned_embeddings": "start",
    "character_floor": "char floor",
    "random_encoder": "random",
    "chance": "chance",
    "retrieval": "retrieval@200",
}


def score_table(scores: Json) -> list[str]:
    """Return the headline scores as aligned lines for a terminal, the means last; code-switched training only where there was any."""
    summary = scores["summary"]
    rows = score_rows(scores)
    means: dict[str, float | None] = {name: summary.get(f"intents.{name}") for name in COLUMNS if name != "retrieval"}
    means["retrieval"] = summary.get("retrieval.top1_200")
    switched = any(values["code_switched_training"] is not None for _, values in rows)
    ends = [("mean", means)]
    if summary.get("intents.probe.without_dev") is not None:
        ends.append(("without †", {name: summary.get(f"intents.{name}.without_dev") for name in COLUMNS}))
    widths = {name: max(8, len(title) + 2) for name, title in COLUMNS.items() if switched or name != "code_switched_training"}
    lines = ["language  " + "".join(f"{COLUMNS[name]:>{width}}" for name, width in widths.items())]
    for language, values in [*rows, *ends]:
        cells = (f"{'–' if (value := values[name]) is None else f'{value:.1f}':>{width}}" for name, width in widths.items())
        lines.append(f"{language:<10}" + "".join(cells))
    return lines


def closing_lines(run: Path, ui_command: str) -> list[str]:
    """Return what ends a run: the table, where the report is, and how to open the tracking UI."""
    scores = read_json(run / SCORES, required=True)
    summary = scores["summary"]
    switched = summary.get("intents.code_switched_training") is not None
    dev = summary.get("intents.probe.without_dev") is not None
    lines = [
        "Zero-shot accuracy and retrieval, %  (labels in English only; * not in the means)",
        "start: the aligned embeddings before training; chance: always the most frequent English label",
        *(["†: choices of pretraining may look at dev templates of this language, not at those scored here"] if dev else []),
        *(["switched: English training sentences with words switched by half a dictionary as well"] if switched else []),
        *score_table(scores),
    ]
    if not score_rows(scores):
        lines = ["This recipe declares no tasks: nothing was scored."]
    minutes, memory = f"{summary['wall_s'] / 60:.1f}", summary["peak_memory_bytes"] / 2**30
    lines += ["", f"stages took {minutes} minute{'' if minutes == '1.0' else 's'} in all, {memory:.1f} GiB at most"]
    lines += [f"report    {run / REPORT}", f"scores    {run / SCORES}", f"MLflow    {ui_command}"]
    return lines


def _count(number: float) -> str:
    return f"{number / 1e6:.1f} million" if number >= 1e6 else f"{number:,.0f}"


def _listed(names: Sequence[str]) -> str:
    """Join names as a sentence does."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""
