"""Compute aligned initial token embeddings: vocabulary/ + pairs of shards/ → embeddings/."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from xlm.config.recipe import AlignedInitialisation, Recipe
from xlm.errors import exits_cleanly
from xlm.model.aligned import AlignedEmbeddings, aligned_embeddings, save_aligned
from xlm.model.aligned_strings import PairBlock
from xlm.runs.cli import parse_invocation, recipe_parser
from xlm.runs.fingerprint import code_fingerprint, fingerprint
from xlm.runs.progress import Progress
from xlm.runs.stage import Stage, read_record
from xlm.shards.format import NAME_COLUMN
from xlm.shards.held_out import HeldOutTexts
from xlm.shards.index import CorpusEntry
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
        shards = ShardSet(folder.shards, vocabulary.fingerprint, vocabulary.size)
        result = aligned_embeddings(
            pair_corpora(shards),
            vocabulary.size,
            recipe.model.embedding_size,
            tokens=sum(corpus.tokens for corpus in shards.index.of_kind("pair")),
            scratch=output.folder,
            # The recipe's scale is what the encoder sees; the table is smaller by the model's own factor.
            rms=settings.scale / recipe.model.embedding_scale,
            power=settings.singular_value_power,
            sif=settings.sif,
            seed=recipe.seed,
        )
        save_aligned(output.folder, result.table, vocabulary.fingerprint)
        output.summary.update(summary(result, vocabulary.fingerprint))
    print("\n".join(f"{name.replace('_', ' '):<18} {value:>12,}" for name, value in output.summary.items() if isinstance(value, int)))
    print(f"embeddings: {vocabulary.size:,} x {recipe.model.embedding_size} in {folder.embeddings}")


def pair_corpora(shards: ShardSet) -> dict[str, Iterator[PairBlock]]:
    """Return, for each pair corpus, its pairs shard by shard, without those set aside for validation; read when iterated."""
    share = shards.index.held_out_share
    held_out = HeldOutTexts(share, np.empty(0, dtype=np.uint64)) if share else None

    def pairs(corpus: CorpusEntry) -> Iterator[PairBlock]:
        with Progress(f"embeddings: {corpus.name}", total=corpus.items, unit="pairs") as progress:
            for shard in shards.shards(corpus.name):
                (source, target), (source_ends, target_ends) = shard.tokens, shard.offsets
                block = PairBlock(shard.batch.column(NAME_COLUMN["pair"]).to_pylist(), (source, target), (source_ends, target_ends))
                yield block if held_out is None else block.without(held_out.keys(block.keys))
                progress.advance(shard.items)

    return {corpus.name: pairs(corpus) for corpus in shards.index.of_kind("pair")}


def stage_inputs(recipe: Recipe, shards: str, vocabulary: str) -> dict[str, str]:
    """Return the fingerprints that decide what the embeddings are."""
    settings = {
        "embeddings": recipe.embeddings.model_dump(mode="json"),
        "width": recipe.model.embedding_size,
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
