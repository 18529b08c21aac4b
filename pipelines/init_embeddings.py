"""Compute aligned initial token embeddings: vocabulary/ + pairs of shards/ → embeddings/."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xlm.config.recipe import AlignedInitialisation, Recipe
from xlm.corpora.store import pair_names
from xlm.errors import exits_cleanly
from xlm.model.aligned import AlignedEmbeddings, Pair, aligned_embeddings, save_aligned
from xlm.runs.cli import parse_invocation, recipe_parser
from xlm.runs.fingerprint import code_fingerprint, fingerprint
from xlm.runs.progress import track
from xlm.runs.stage import Stage, read_record
from xlm.shards.reader import ShardSet
from xlm.vocab.vocabulary import Vocabulary


@exits_cleanly
def main() -> None:
    """Write the embeddings of a recipe, unless they are there already or the recipe draws them at random."""
    invocation = parse_invocation(recipe_parser(__doc__ or ""))
    folder, recipe = invocation.folder, invocation.recipe
    settings = recipe.embeddings
    if not isinstance(settings, AlignedInitialisation):
        print(f"embeddings: nothing to do, the recipe says embeddings.kind {settings.kind}.")
        return
    shards_record = read_record(folder.shards)
    vocabulary = Vocabulary.load(folder.vocabulary)
    stage = Stage(folder.embeddings, "embeddings", stage_inputs(recipe, shards_record.fingerprint, vocabulary.fingerprint))
    if stage.is_done():
        print(f"embeddings: already done ({folder.embeddings}).")
        return
    with stage.write() as output:
        result = aligned_embeddings(
            # Pairs that n-way text adds between its translations say nothing that their pairs with the source do not.
            pair_corpora(ShardSet(folder.shards, vocabulary.fingerprint), pair_names(folder.corpus)),
            vocabulary.size,
            recipe.model.width,
            # The recipe's scale is what the encoder sees; the table is smaller by the model's own factor.
            rms=settings.scale / recipe.model.embedding_scale,
            power=settings.singular_value_power,
            seed=recipe.seed,
        )
        save_aligned(output.folder, result.table, vocabulary.fingerprint)
        output.summary.update(summary(result, vocabulary.fingerprint))
    print("\n".join(f"{name.replace('_', ' '):<18} {value:>12,}" for name, value in output.summary.items() if isinstance(value, int)))
    print(f"embeddings: {vocabulary.size:,} x {recipe.model.width} in {folder.embeddings}")


def pair_corpora(shards: ShardSet, names: Iterable[str]) -> dict[str, Iterator[Pair]]:
    """Return, for each of these pair corpora, its (key, source ids, target ids); read when iterated."""

    def pairs(name: str, items: int) -> Iterator[Pair]:
        for item in track(range(items), f"embeddings: {name}", total=items, unit="pairs"):
            yield shards.pair_key(name, item), *shards.pair_tokens(name, item)

    return {name: pairs(name, shards.index.corpus(name).items) for name in sorted(names)}


def stage_inputs(recipe: Recipe, shards: str, vocabulary: str) -> dict[str, str]:
    """Return the fingerprints that decide what the embeddings are."""
    settings = {
        "embeddings": recipe.embeddings.model_dump(mode="json"),
        "width": recipe.model.width,
        "embedding_scale": recipe.model.embedding_scale,
        "seed": recipe.seed,
    }
    return {"shards": shards, "vocabulary": vocabulary, "settings": fingerprint(settings), "code": code_fingerprint("model")}


def summary(result: AlignedEmbeddings, vocabulary: str) -> dict[str, object]:
    """Return what the stage's record says."""
    return {
        "vocabulary": vocabulary,
        "aligned_strings": result.aligned_strings,
        "strings": result.strings,
        "empty_strings": result.empty_strings,
        "unseen_pieces": result.unseen_pieces,
    }


if __name__ == "__main__":
    main()
