"""A small run folder up to its shards: text from a generator, the real vocabulary trainer and shard writer."""

from collections.abc import Iterator
from pathlib import Path

import yaml

from xlm.config.recipe import Recipe
from xlm.config.strict import load_config
from xlm.corpora.documents import Document, SentencePair
from xlm.corpora.store import document_languages, pair_names, write_documents, write_pairs
from xlm.runs.folder import RunFolder
from xlm.runs.stage import Stage
from xlm.seeding import keyed_generator
from xlm.shards.build import ShardBuilder
from xlm.shards.plan_requests import requested_plans
from xlm.vocab.spec import VocabularySpec
from xlm.vocab.train import train_vocabulary
from xlm.vocab.vocabulary import Vocabulary

OBJECTIVES = {"contrastive": {"share": 0.4, "loss_weight": 0.5}, "tlm": {"share": 0.4}, "mlm": {"share": 0.2}}
SAMPLING = {"kind": "temperature", "alpha": 0.7}
RECIPE = {
    "name": "made-up",
    "seed": 5,
    "corpora": {"manifest": "none.yaml"},
    "vocabulary": "none.yaml",
    "embeddings": {"kind": "random"},
    "model": {"width": 16, "layers": 1, "heads": 2, "feed_forward": 32, "max_positions": 64, "dropout": 0.1},
    "phases": [
        {"name": "short", "steps": 7, "sequence_length": 32, "sampling": SAMPLING, "objectives": OBJECTIVES},
        {"name": "long", "steps": 6, "sequence_length": 64, "sampling": SAMPLING, "objectives": OBJECTIVES},
    ],
    "training": {
        "tokens_per_step": 512,
        "micro_batch_tokens": 192,
        "precision": "bf16",
        "optimizer": {"learning_rate": 0.003},
        "schedule": {"kind": "cosine", "warmup_steps": 3},
        # Checkpoints fall inside a window of the log, so that open sums have to survive as well.
        "checkpoint": {"every_steps": 3, "keep_last": 2},
        "log_every_steps": 2,
        "process_group_timeout_s": 60,
    },
}


# Every objective, and a head for each.
EVERYTHING = {
    **RECIPE,
    "model": {
        **RECIPE["model"],
        "token_types": 2,
        "sentence_head": True,
        "discriminator_head": True,
        "generator": {"width": 8, "layers": 1, "heads": 2, "feed_forward": 16},
    },
    "phases": [
        {
            "name": "short",
            "steps": 5,
            "sequence_length": 32,
            "sampling": SAMPLING,
            "objectives": {
                "contrastive": {"share": 0.2, "loss_weight": 0.5},
                "tlm": {"share": 0.2},
                "mlm": {"share": 0.1},
                "clm": {"share": 0.1, "rows": "full_sentences"},
                "sop": {"share": 0.2},
                "rtd": {"share": 0.2, "discriminator_weight": 5.0},
            },
        },
        {
            "name": "long",
            "steps": 4,
            "sequence_length": 64,
            "sampling": SAMPLING,
            "objectives": {"nsp": {"share": 0.4}, "rtd": {"share": 0.4}, "mlm": {"share": 0.2}},
        },
    ],
}


def write_recipe(path: Path, recipe: dict[str, object]) -> Recipe:
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return load_config(Recipe, path)


def texts(seed: int) -> list[str]:
    generator = keyed_generator("made-up run", seed)
    words = ["".join(generator.choice(list("abcdefgh"), size=4)) for _ in range(50)]
    return [" ".join(generator.choice(words, size=int(generator.integers(2, 12)))) for _ in range(200)]


def write_vocabulary(folder: RunFolder, seed: int = 1) -> Vocabulary:
    spec = VocabularySpec(size=350, threads=1)
    lines = [line for text in texts(seed) for line in (text, text[::-1])]
    vocabulary = train_vocabulary(lines, spec)
    with Stage(folder.vocabulary, "vocabulary", {"seed": str(seed)}).write() as output:
        vocabulary.save(output.folder, spec)
    return vocabulary


def write_shards(folder: RunFolder, recipe: Recipe, vocabulary: Vocabulary) -> None:
    sentences = any("nsp" in phase.objectives for phase in recipe.phases)
    with Stage(folder.corpus, "corpus", {"made": "up"}).write() as output:
        for language in ("en", "de"):
            told = [text if language == "en" else text[::-1] for text in texts(1)]
            write_documents(output.folder, language, documents_of(told, language, sentences=sentences))
        write_pairs(
            output.folder,
            "en_de",
            (SentencePair(str(number), text, text[::-1], "en", "de", "made") for number, text in enumerate(texts(1))),
        )
    requests = requested_plans(recipe.phases, documents=document_languages(folder.corpus), pairs=pair_names(folder.corpus))
    with Stage(folder.shards, "shards", {"vocabulary": vocabulary.fingerprint}).write() as output:
        ShardBuilder(
            corpus_folder=folder.corpus,
            folder=output.folder,
            vocabulary=vocabulary,
            items_per_shard=500,
            variants=1,
            seed=recipe.seed,
            held_out_share=recipe.shards.held_out_share,
        ).build(requests)


def documents_of(told: list[str], language: str, *, sentences: bool) -> Iterator[Document]:
    """A text a document, or with ``sentences`` four."""
    for number in range(0, len(told), 4 if sentences else 1):
        parts = told[number : number + 4] if sentences else [told[number]]
        starts = tuple(sum(len(part) + 1 for part in parts[:place]) for place in range(len(parts)))
        yield Document(f"{language}{number}", " ".join(parts), language, "made", starts if sentences else None)


def make_run(root: Path, recipe_of: dict[str, object] = RECIPE) -> Path:
    """Fill ``root`` and return the recipe's path."""
    root.mkdir(parents=True, exist_ok=True)
    recipe_path = root / "recipe.yaml"
    recipe = write_recipe(recipe_path, recipe_of)
    folder = RunFolder(root / "run")
    write_shards(folder, recipe, write_vocabulary(folder))
    return recipe_path
