"""How fast masked batches are made: our loader against `datasets` with transformers' MLM collator.

Both read the same documents from memory-mapped Arrow files, one document a row, shuffle them, select 15 %
of the positions by BERT's rule and hand torch tensors over, in one process on one core. Rounds alternate
between the two, so that other work on the machine meets both. The peer is given its special tokens' mask
ready made, as `run_mlm.py` stores it. Ours also makes position, language and segment ids, and can make any
batch without those before it.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import datasets
import numpy as np
import torch
import transformers
from results import write_results
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from xlm.batching.loader import BatchLoader
from xlm.batching.packed_batch import PackedBatch
from xlm.config.recipe import Recipe
from xlm.mixing.data_plan import DataPlan
from xlm.seeding import keyed_generator
from xlm.shards.index import PlanEntry, ShardIndex
from xlm.shards.reader import ShardSet, TokenShard
from xlm.shards.row_plan import document_segments, pack_rows
from xlm.shards.writer import ShardWriter

VOCABULARY_SIZE = 32_000
TOKENS = 2_000_000
ROWS_PER_BATCH = 32
LENGTHS = (128, 512)
ROUNDS = 9
ROUND_S = 0.8


class Pieces:
    """A vocabulary as far as batching looks at it."""

    size = VOCABULARY_SIZE
    special_ids = (0, 1, 2, 3, 4)
    bos_id, eos_id, mask_id = 2, 3, 4


def documents(length: int) -> np.ndarray:
    """Return documents that fill a row with their two special pieces: [rows, length - 2], Zipfian."""
    shape = (TOKENS // length, length - 2)
    return 5 + keyed_generator("benchmark", length).zipf(1.2, shape).astype(np.int64) % (VOCABULARY_SIZE - 5)


def our_batches(folder: Path, text: np.ndarray, length: int) -> Iterator[PackedBatch]:
    """Write the documents as shards and yield the loader's batches, step after step."""
    writer = ShardWriter(
        folder, "en", "monolingual", ("en",), vocabulary_fingerprint="made", token_dtype=np.dtype(np.uint16), items_per_shard=1 << 30
    )
    for number, document in enumerate(text):
        writer.add(str(number), document)
    entry = writer.close()
    shard = TokenShard.open(folder / entry.files[0].path, "monolingual", "made")
    starts = np.zeros(VOCABULARY_SIZE, dtype=np.bool_)
    segments = document_segments(shard.tokens[0], shard.offsets[0], {}, starts, length=length)
    plan = pack_rows(segments, objective="mlm", length=length, generator=keyed_generator("rows", length))
    plan.write(folder / "plan.arrow")
    rows = PlanEntry("en", "mlm", length, 0, plan.rows, len(plan.segments), plan.fill("mlm", length), "plan.arrow")
    ShardIndex("made", 1, {"en": entry}, {("en", "mlm", length, 0): rows}).save(folder)
    shards = ShardSet(folder, "made")
    recipe = one_phase_recipe(length)
    loader = BatchLoader(
        DataPlan(recipe, shards.index),
        shards,
        Pieces(),
        recipe.seed,
        rank=0,
        world_size=1,
        micro_batch_tokens=recipe.training.micro_batch_tokens,
    )
    for step in range(recipe.total_steps):
        yield from loader.batch(step)


def one_phase_recipe(length: int) -> Recipe:
    """Return a recipe of MLM alone; only its phase and token budgets matter here."""
    tokens = ROWS_PER_BATCH * length
    phase = {
        "name": "mlm",
        "steps": 10**9,
        "sequence_length": length,
        "sampling": {"kind": "temperature", "alpha": 1.0},
        "objectives": {"mlm": {"share": 1.0}},
    }
    return Recipe.model_validate(
        {
            "name": "benchmark",
            "seed": 1,
            "corpora": {"manifest": "none"},
            "vocabulary": "none",
            "embeddings": {"kind": "random"},
            "model": {"width": 8, "layers": 1, "heads": 1, "feed_forward": 8, "max_positions": length},
            "phases": [phase],
            "training": {"tokens_per_step": tokens, "micro_batch_tokens": tokens, "optimizer": {"learning_rate": 1e-3}},
        }
    )


def peer_batches(folder: Path, text: np.ndarray, length: int) -> Iterator[dict[str, torch.Tensor]]:
    """Save the same rows as a `datasets` set and yield the collator's batches, epoch after epoch."""
    edge = np.ones((len(text), 1), dtype=np.int64)
    columns = {
        "input_ids": np.hstack([edge * Pieces.bos_id, text, edge * Pieces.eos_id]).tolist(),
        "special_tokens_mask": np.hstack([edge, np.zeros_like(text), edge]).tolist(),
    }
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict(columns).save_to_disk(folder)
    rows = datasets.load_from_disk(folder).with_format("torch")
    names = ["<pad>", "<unk>", "<s>", "</s>", "<mask>", *(f"piece{number}" for number in range(5, VOCABULARY_SIZE))]
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({name: number for number, name in enumerate(names)}, unk_token="<unk>")),
        **{"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "mask_token": "<mask>"},
    )
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    generator = torch.Generator().manual_seed(1)
    while True:
        yield from torch.utils.data.DataLoader(
            rows, batch_size=ROWS_PER_BATCH, shuffle=True, drop_last=True, collate_fn=collator, generator=generator
        )


def tokens_per_second(following: Callable[[], int]) -> float:
    """Take batches for a round and return tokens a second; ``following`` makes one and returns its tokens."""
    started, tokens = time.perf_counter(), 0
    while time.perf_counter() - started < ROUND_S:
        tokens += following()
    return tokens / (time.perf_counter() - started)


def compare(length: int) -> tuple[float, dict[str, object]]:
    """Return ours over the peer's at one row length, the median over rounds, and every round's figures."""
    text = documents(length)
    with tempfile.TemporaryDirectory() as folder:
        ours = our_batches(Path(folder) / "ours", text, length)
        peer = peer_batches(Path(folder) / "peer", text, length)
        sides = {"ours": lambda: next(ours).tokens, "peer": lambda: next(peer)["input_ids"].numel()}
        for following in sides.values():  # files opened, pages cached, code warm
            for _ in range(5):
                following()
        rounds = [{name: tokens_per_second(following) for name, following in sides.items()} for _ in range(ROUNDS)]
        peer.close()
        ours.close()
    ratio = statistics.median(figures["ours"] / figures["peer"] for figures in rounds)
    medians = {name: statistics.median(figures[name] for figures in rounds) for name in sides}
    return ratio, {"tokens_per_second": medians, "rounds": rounds, "sequence_length": length, "rows_per_batch": ROWS_PER_BATCH}


def main() -> None:
    """Measure every length, print the ratios and write ``results/data.json``."""
    torch.set_num_threads(1)
    ratios: dict[str, float] = {}
    raw: dict[str, object] = {"peer": "datasets + transformers.DataCollatorForLanguageModeling in a torch DataLoader"}
    for length in LENGTHS:
        label = f"loader_{length}"
        ratios[label], figures = compare(length)
        raw[label] = figures
        medians = figures["tokens_per_second"]
        print(
            f"length {length}: ours {medians['ours']:,.0f} tokens/s, peer {medians['peer']:,.0f} tokens/s, ratio {ratios[label]:.2f}",
            flush=True,
        )
    print(f"written: {write_results('data', ratios, raw)}")


if __name__ == "__main__":
    main()
