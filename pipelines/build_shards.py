"""Turn text into token shards and row plans: corpus/ + vocabulary/ → shards/."""

from __future__ import annotations

import argparse

from xlm.config.recipe import Recipe
from xlm.corpora.store import document_languages, pair_names
from xlm.errors import UserError, exits_cleanly
from xlm.runs.cli import parse_invocation, recipe_parser
from xlm.runs.fingerprint import code_fingerprint, fingerprint
from xlm.runs.folder import RunFolder
from xlm.runs.stage import Stage, read_record
from xlm.shards.backends import Backend, LocalBackend, RayBackend, default_workers
from xlm.shards.build import ShardBuilder
from xlm.shards.index import ShardIndex
from xlm.shards.n_way import n_way_names
from xlm.shards.plan_requests import PlanRequest, requested_plans
from xlm.shards.reader import ShardSet
from xlm.shards.summary import n_way_notes, shards_summary, shards_table
from xlm.storage.publish import publish
from xlm.vocab.vocabulary import Vocabulary


@exits_cleanly
def main() -> None:
    """Build the shards of a recipe, unless they are there already, and upload them where the recipe says so."""
    invocation = parse_invocation(shards_parser())
    folder, recipe = invocation.folder, invocation.recipe
    if invocation.arguments.verify:
        verify(folder)
        return
    backend = chosen_backend(invocation.arguments)
    corpus = read_record(folder.corpus)
    read_record(folder.vocabulary)
    vocabulary = Vocabulary.load(folder.vocabulary)
    requests = corpus_requests(recipe, folder)
    stage = Stage(folder.shards, "shards", stage_inputs(recipe, corpus.fingerprint, vocabulary, requests))
    if stage.is_done():
        print(f"shards: already done ({folder.shards}).")
    else:
        with stage.write() as output:
            builder = ShardBuilder(
                corpus_folder=folder.corpus,
                folder=output.folder,
                vocabulary=vocabulary,
                items_per_shard=recipe.shards.items_per_shard,
                variants=recipe.shards.variants,
                seed=recipe.seed,
                n_way=recipe.shards.n_way,
                held_out_share=recipe.shards.held_out_share,
                backend=backend,
            )
            built = builder.build(requests)
            # Derived corpora are known by name before, by content only now.
            index_requests(recipe, built.index)
            output.summary.update(shards_summary(built))
        print("\n".join([*shards_table(built.index), *n_way_notes(built.n_way, recipe.shards.variants)]))
        print(f"shards: {output.summary['items']:,} items, {output.summary['tokens']:,} tokens in {folder.shards}")
    if recipe.shards.storage is not None:
        known = {file.path: (file.size_bytes, file.sha256) for file in ShardIndex.load(folder.shards).files()}
        found = publish(folder.shards, recipe.shards.storage.url, known)
        print(f"shards: {found.uploaded:,} files uploaded ({found.bytes:,} bytes), {found.skipped:,} were there already.")


def shards_parser() -> argparse.ArgumentParser:
    """Return the parser: who does the work is no part of the recipe, since it decides nothing."""
    parser = recipe_parser(__doc__ or "")
    parser.add_argument(
        "--backend", choices=("local", "ray"), default="local", help="processes of this machine, or Ray (pip install 'xlm[ray]')"
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=None,
        metavar="N",
        help="how many at once (default: one a core, at most 8, fewer where memory is short)",
    )
    parser.add_argument("--verify", action="store_true", help="build nothing: read the finished shards and check every file's SHA-256")
    return parser


def chosen_backend(arguments: argparse.Namespace) -> Backend:
    """Return who does the work; raises UserError for less than one worker."""
    workers = default_workers() if arguments.workers is None else arguments.workers
    if workers < 1:
        raise UserError(f"--workers is {workers}; at least 1 is needed.")
    return RayBackend(workers) if arguments.backend == "ray" else LocalBackend(workers)


def corpus_requests(recipe: Recipe, folder: RunFolder) -> list[PlanRequest]:
    """Return the row plans that the recipe's phases need of the corpus, n-way pairs included."""
    pairs = pair_names(folder.corpus)
    return requested_plans(
        recipe.phases,
        documents=document_languages(folder.corpus),
        pairs=n_way_names(pairs) if recipe.shards.n_way else pairs,
    )


def index_requests(recipe: Recipe, index: ShardIndex) -> list[PlanRequest]:
    """Return the row plans that the phases need of what was built; raises UserError where a phase would have no rows."""
    documents, pairs = ([entry.name for entry in index.of_kind(kind)] for kind in ("monolingual", "pair"))
    return requested_plans(recipe.phases, documents=documents, pairs=pairs)


def stage_inputs(recipe: Recipe, corpus: str, vocabulary: Vocabulary, requests: list[PlanRequest]) -> dict[str, str]:
    """Return the fingerprints that decide what the shards hold; how they are read and where they go decides nothing."""
    settings = recipe.shards.model_dump(mode="json", include={"items_per_shard", "variants", "n_way", "held_out_share"})
    return {
        "corpus": corpus,
        "vocabulary": vocabulary.fingerprint,
        "plans": fingerprint([(request.corpus, request.layout, request.length) for request in requests]),
        "settings": fingerprint({"seed": recipe.seed, **settings}),
        "code": code_fingerprint("vocab", "shards"),
    }


def verify(folder: RunFolder) -> None:
    """Check every file of the finished shards; raises UserError naming the first that is damaged."""
    read_record(folder.shards)
    vocabulary = Vocabulary.load(folder.vocabulary)
    shards = ShardSet(folder.shards, vocabulary.fingerprint, vocabulary.size)
    shards.verify()
    index = shards.index
    tokens, plans = (sum(len(entry.files) for entry in entries.values()) for entries in (index.corpora, index.plans))
    size = sum(file.size_bytes for file in index.files())
    print(f"shards: {tokens:,} token shards, {plans:,} blocks of row plans and the piece counts ({size:,} bytes) are as they were written.")


if __name__ == "__main__":
    main()
