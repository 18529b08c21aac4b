"""Turn text into token shards and row plans: corpus/ + vocabulary/ → shards/."""

from __future__ import annotations

from collections.abc import Iterator

from xlm.config.recipe import Recipe
from xlm.corpora.store import document_languages, pair_names
from xlm.errors import exits_cleanly
from xlm.runs.cli import parse_invocation, recipe_parser
from xlm.runs.fingerprint import code_fingerprint, fingerprint
from xlm.runs.stage import Stage, read_record
from xlm.shards.build import ShardBuilder
from xlm.shards.index import ShardIndex
from xlm.shards.plan_requests import PlanRequest, requested_plans
from xlm.vocab.vocabulary import Vocabulary


@exits_cleanly
def main() -> None:
    """Build the shards of a recipe, unless they are there already."""
    invocation = parse_invocation(recipe_parser(__doc__ or ""))
    folder, recipe = invocation.folder, invocation.recipe
    corpus = read_record(folder.corpus)
    read_record(folder.vocabulary)
    vocabulary = Vocabulary.load(folder.vocabulary)
    requests = requested_plans(recipe.phases, documents=document_languages(folder.corpus), pairs=pair_names(folder.corpus))
    stage = Stage(folder.shards, "shards", stage_inputs(recipe, corpus.fingerprint, vocabulary, requests))
    if stage.is_done():
        print(f"shards: already done ({folder.shards}).")
        return
    with stage.write() as output:
        builder = ShardBuilder(
            corpus_folder=folder.corpus,
            folder=output.folder,
            vocabulary=vocabulary,
            items_per_shard=recipe.shards.items_per_shard,
            variants=recipe.shards.variants,
            seed=recipe.seed,
        )
        index = builder.build(requests)
        output.summary.update(summary(index))
    print("\n".join(table(index)))
    print(f"shards: {output.summary['items']:,} items, {output.summary['tokens']:,} tokens in {folder.shards}")


def stage_inputs(recipe: Recipe, corpus: str, vocabulary: Vocabulary, requests: list[PlanRequest]) -> dict[str, str]:
    """Return the fingerprints that decide what the shards hold."""
    return {
        "corpus": corpus,
        "vocabulary": vocabulary.fingerprint,
        "plans": fingerprint([(request.corpus, request.objective, request.length) for request in requests]),
        "settings": fingerprint({"seed": recipe.seed, **recipe.shards.model_dump(mode="json")}),
        "code": code_fingerprint("vocab", "shards"),
    }


def summary(index: ShardIndex) -> dict[str, object]:
    """Return what the stage's record says."""
    dropped: dict[str, int] = {}
    for entry in (*index.corpora.values(), *index.plans.values()):
        for reason, count in entry.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    return {
        "vocabulary": index.vocabulary_fingerprint,
        "items": sum(entry.items for entry in index.corpora.values()),
        "tokens": sum(entry.tokens for entry in index.corpora.values()),
        "rows": sum(plan.rows for plan in index.plans.values()),
        "lowest_fill": min((plan.fill for plan in index.plans.values() if plan.rows), default=1.0),
        "dropped": dropped,
    }


def table(index: ShardIndex) -> Iterator[str]:
    """Yield the lines of the table: one a corpus and plan (variant 0)."""
    yield f"{'corpus':<12} {'items':>9} {'tokens':>11}  {'plan':<16} {'rows':>8} {'fill':>7} {'dropped':>8}"
    for name, entry in sorted(index.corpora.items(), key=lambda item: (item[1].kind, item[0])):
        first = f"{name:<12} {entry.items:>9,} {entry.tokens:>11,}"
        plans = [plan for key, plan in sorted(index.plans.items()) if key[0] == name and key[3] == 0]
        if not plans:
            yield f"{first}  {'–':<16} {'':>8} {'':>7} {sum(entry.dropped.values()):>8,}"
        for plan in plans:
            dropped = sum(entry.dropped.values()) + sum(plan.dropped.values())
            yield f"{first}  {f'{plan.objective} {plan.length}':<16} {plan.rows:>8,} {plan.fill:>7.2%} {dropped:>8,}"
            first = " " * len(first)


if __name__ == "__main__":
    main()
