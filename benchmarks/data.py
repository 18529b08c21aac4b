"""How fast masked batches are made, how full they are, and how soon a run goes on.

loader    tokens a second of our loader over those of `datasets` with transformers' MLM collator, the worst of two row
          lengths, each with one corpus in one file and with eight corpora in 256 files (nearly every row of a batch then
          comes from a file of its own). Both read the same documents from as many memory-mapped Arrow files in random
          order, one document a row, select 15 % of the positions by BERT's rule and hand over torch tensors in
          micro-batches of 32 rows, in one process on one core. Rounds alternate between the two, so that other work
          on the machine meets both. The peer gets its special tokens' mask ready made, as `run_mlm.py` stores it. Ours
          takes its micro-batches from global batches of 512 rows, also makes position, language and segment ids, and can
          make any batch without those before it.
pairs     the share of a batch that is text or a special piece, ours over the peer's. Ours is what packed TLM rows of
          256 positions hold, though nothing is computed for what is left of a row; the peer pads 32 pairs to the longest.
resume    time to the first batch at step 0 over that at step 1,000,000, each in fresh processes, from opening the
          shards and planning the run to the batch; loading Python's modules comes on top and is reported apart.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time

STARTED = time.perf_counter()

from collections.abc import Callable, Iterator, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from results import write_results  # noqa: E402

from xlm.batching.loader import BatchLoader  # noqa: E402
from xlm.batching.packed_batch import PackedBatch  # noqa: E402
from xlm.config.recipe import Recipe  # noqa: E402
from xlm.mixing.data_plan import DataPlan  # noqa: E402
from xlm.seeding import keyed_generator  # noqa: E402
from xlm.shards.block_plan import block_plan  # noqa: E402
from xlm.shards.index import CorpusEntry, PlanEntry, PlanFile, ShardIndex  # noqa: E402
from xlm.shards.layouts import RULES, Layout  # noqa: E402
from xlm.shards.reader import ShardSet, TokenShard  # noqa: E402
from xlm.shards.writer import ShardWriter, corpus_entry  # noqa: E402

VOCABULARY_SIZE = 32_000
TOKENS = 2_000_000
ROWS_PER_BATCH = 32
BATCHES_PER_STEP = 16
LENGTHS = (128, 512)
SPREADS = {"1_file": (1, 1), "256_files": (8, 32)}  # corpora, and files of each
ROUNDS = 11
ROUND_S = 0.5
PAIRS = 20_000
PAIR_LENGTH = 256
LANGUAGES = ("ar", "de", "es", "fr", "ja", "ru", "sw", "tr", "vi", "zh-Hans")
LATE_STEP = 1_000_000
STARTS = 5


class Pieces:
    """A vocabulary as far as batching looks at it."""

    size = VOCABULARY_SIZE
    special_ids = (0, 1, 2, 3, 4)
    bos_id, eos_id, mask_id = 2, 3, 4
    is_word_start = np.arange(VOCABULARY_SIZE) % 3 == 0


def text(count: int, *key: str | int) -> np.ndarray:
    """Return so many Zipfian pieces."""
    drawn: np.ndarray = 5 + keyed_generator("benchmark", *key).zipf(1.2, count).astype(np.int64) % (VOCABULARY_SIZE - 5)
    return drawn


def pairs_of(name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return pairs of log-normal lengths: median 20 pieces a side with sigma .8, sides different by sigma .25.

    Four bodies of pairs (a game's and an office suite's messages, the New Testament, the Quran), at 4 characters
    a piece, have medians of 11 to 29, sigmas of .4 to 1.2 and differences of .2 to .5.
    """
    generator = keyed_generator("benchmark pairs", name)
    source = generator.normal(np.log(20), 0.8, PAIRS)
    lengths = np.maximum(1, np.exp([source, source + generator.normal(0, 0.25, PAIRS)])).astype(np.int64)
    lengths = lengths[:, lengths.sum(axis=0) + RULES["pairs"].per_unit <= PAIR_LENGTH]
    sides = [np.split(text(int(of_side.sum()), name, side), np.cumsum(of_side)[:-1]) for side, of_side in enumerate(lengths)]
    return list(zip(*sides, strict=True))


def write_corpus(folder: Path, name: str, items: Sequence[tuple[np.ndarray, ...]], shards: int = 1) -> CorpusEntry:
    """Write documents or pairs as so many shards."""
    languages = tuple(name.split("_"))
    kind = "pair" if len(languages) == 2 else "monolingual"
    files = []
    for shard, numbers in enumerate(np.array_split(np.arange(len(items)), shards)):
        writer = ShardWriter(name, kind, languages, vocabulary_fingerprint="made", token_dtype=np.dtype(np.uint16))
        for number in numbers.tolist():
            writer.add(f"{number}", *items[number])
        files.append(writer.write(folder, shard))
    return corpus_entry(name, kind, languages, files)


def write_rows(folder: Path, entry: CorpusEntry, layout: Layout, length: int) -> PlanEntry:
    """Plan the rows of a corpus."""
    files, plans = [], []
    for number, file in enumerate(entry.files):
        shard = TokenShard.open(folder / file.path, entry.kind, "made")
        generator = keyed_generator("rows", entry.name, layout, length, number)
        plan, _ = block_plan(shard, layout, length, is_word_start=Pieces.is_word_start, generator=generator)
        path = f"rows/{entry.name}-{layout}-{length}-{number}.arrow"
        facts = plan.write(folder / path)
        files.append(PlanFile(path, plan.rows, facts.size_bytes, facts.sha256))
        plans.append(plan)
    facts_of_all = [(plan.rows, len(plan.segments), plan.text_tokens, plan.used(layout)) for plan in plans]
    rows, segments, tokens, used = (sum(column) for column in zip(*facts_of_all, strict=True))
    return PlanEntry(entry.name, layout, length, 0, rows, segments, tokens, used / (rows * length), tuple(files))


def save_index(folder: Path, corpora: Sequence[CorpusEntry], plans: Sequence[PlanEntry]) -> None:
    """Write ``index.json``."""
    by_key = {(plan.corpus, plan.layout, plan.length, plan.variant): plan for plan in plans}
    ShardIndex("made", 1, {entry.name: entry for entry in corpora}, by_key).save(folder)


def recipe_of(objectives: dict[str, object], length: int, *, micro_batches: int = BATCHES_PER_STEP, **phase: object) -> Recipe:
    """Return a recipe; only its phases and token budgets matter here."""
    default = {"name": "only", "steps": 10**9, "sequence_length": length, "sampling": {"kind": "temperature", "alpha": 0.5}}
    tokens_per_step = BATCHES_PER_STEP * ROWS_PER_BATCH * length
    return Recipe.model_validate(
        {
            "name": "benchmark",
            "seed": 1,
            "corpora": {"manifest": "none"},
            "vocabulary": "none",
            "embeddings": {"kind": "random"},
            "model": {"width": 8, "layers": 1, "heads": 1, "feed_forward": 8, "max_positions": length},
            "phases": [{**default, "objectives": objectives, **phase}],
            "training": {
                "tokens_per_step": tokens_per_step,
                "micro_batch_tokens": tokens_per_step // micro_batches,
                "optimizer": {"learning_rate": 1e-3},
            },
        }
    )


def loader_of(folder: Path, recipe: Recipe) -> BatchLoader:
    """Open shards, plan the run and return its loader, as training does."""
    shards = ShardSet(folder, "made")
    tokens = recipe.training.micro_batch_tokens
    plan = DataPlan(recipe, shards.index)
    return BatchLoader(plan, shards, Pieces(), recipe.seed, rank=0, world_size=1, micro_batch_tokens=tokens)


def batches_of(loader: BatchLoader) -> Iterator[PackedBatch]:
    """Yield micro-batches, step after step."""
    step = 0
    while True:
        yield from loader.batch(step)
        step += 1


def peer_batches(folder: Path, rows: Sequence[np.ndarray], files: int = 1) -> Iterator[dict[str, torch.Tensor]]:
    """Save rows of ids as a `datasets` set of so many files and yield the collator's batches, epoch after epoch."""
    import datasets
    import transformers
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    special = [np.isin(row, Pieces.special_ids).astype(np.int64) for row in rows]
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict({"input_ids": rows, "special_tokens_mask": special}).save_to_disk(folder, num_shards=files)
    stored = datasets.load_from_disk(folder).with_format("torch")
    names = ["<pad>", "<unk>", "<s>", "</s>", "<mask>", *(f"piece{number}" for number in range(5, VOCABULARY_SIZE))]
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({name: number for number, name in enumerate(names)}, unk_token="<unk>")),
        **{"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "mask_token": "<mask>"},
    )
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    generator = torch.Generator().manual_seed(1)
    while True:
        yield from torch.utils.data.DataLoader(
            stored, batch_size=ROWS_PER_BATCH, shuffle=True, drop_last=True, collate_fn=collator, generator=generator
        )


def speeds(following: Callable[[], int]) -> dict[str, float]:
    """Take batches for a round and return tokens a second of wall and of processor time; ``following`` makes one."""
    clock, processor, tokens = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - clock < ROUND_S:
        tokens += following()
    return {"wall": tokens / (time.perf_counter() - clock), "processor": tokens / (time.process_time() - processor)}


def measure_loader(length: int, corpora: int, files_each: int) -> tuple[float, dict[str, object]]:
    """Return ours over the peer's at one row length, the median over rounds of wall time, and every round's figures."""
    documents = text(TOKENS // length * (length - 2), "documents", length).reshape(-1, length - 2)
    edges = np.full((len(documents), 1), Pieces.bos_id), np.full((len(documents), 1), Pieces.eos_id)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = zip(LANGUAGES, np.array_split(documents, corpora), strict=False)
        entries = [write_corpus(folder, language, [(document,) for document in part], files_each) for language, part in parts]
        save_index(folder, entries, [write_rows(folder, entry, "documents", length) for entry in entries])
        ours = batches_of(loader_of(folder, recipe_of({"mlm": {"share": 1.0}}, length)))
        peer = peer_batches(folder / "peer", list(np.hstack([edges[0], documents, edges[1]])), corpora * files_each)
        sides = {"ours": lambda: next(ours).tokens, "peer": lambda: next(peer)["input_ids"].numel()}
        for following in sides.values():  # an epoch: files opened, pages mapped, code warm
            for _ in range(len(documents) // ROWS_PER_BATCH):
                following()
        rounds = [{side: speeds(following) for side, following in sides.items()} for _ in range(ROUNDS)]
        peer.close()
    ratios = {clock: statistics.median(each["ours"][clock] / each["peer"][clock] for each in rounds) for clock in ("wall", "processor")}
    medians = {side: {clock: statistics.median(each[side][clock] for each in rounds) for clock in ratios} for side in sides}
    figures = {
        "ratios": ratios,
        "tokens_per_second": medians,
        "rounds": rounds,
        "sequence_length": length,
        "corpora": corpora,
        "files": corpora * files_each,
        "rows_per_batch": ROWS_PER_BATCH,
    }
    return ratios["wall"], figures


def measure_pairs() -> tuple[float, dict[str, object]]:
    """Return our share of useful positions over the peer's on the same pairs, over an epoch of each."""
    pairs = pairs_of("en_de")
    bos, eos = np.array([Pieces.bos_id]), np.array([Pieces.eos_id])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        entry = write_corpus(folder, "en_de", pairs)
        rows = write_rows(folder, entry, "pairs", PAIR_LENGTH)
        save_index(folder, [entry], [rows])
        ours = batches_of(loader_of(folder, recipe_of({"tlm": {"share": 1.0}}, PAIR_LENGTH)))
        batches = rows.rows // ROWS_PER_BATCH
        our_share = sum(next(ours).tokens for _ in range(batches)) / (batches * ROWS_PER_BATCH * PAIR_LENGTH)
        peer = peer_batches(folder / "peer", [np.concatenate([bos, source, eos, target, eos]) for source, target in pairs])
        padded = useful = 0
        for _ in range(len(pairs) // ROWS_PER_BATCH):
            present = next(peer)["attention_mask"]
            padded, useful = padded + present.numel(), useful + int(present.sum())
        peer.close()
    lengths = [len(source) + len(target) + 3 for source, target in pairs]
    shares = {"ours": our_share, "peer": useful / padded}
    return our_share / shares["peer"], {"useful_share": shares, "pairs": len(pairs), "mean_length": statistics.mean(lengths)}


def many_corpora(folder: Path) -> Recipe:
    """Write ten languages and their pairs with English, and return a recipe that draws from all of them."""
    corpora = [write_corpus(folder, name, [(text(64, name, item),) for item in range(500)]) for name in LANGUAGES]
    corpora += [write_corpus(folder, f"en_{name}", pairs_of(name)[:500]) for name in LANGUAGES]
    layouts: dict[str, tuple[Layout, ...]] = {"monolingual": ("documents",), "pair": ("pairs", "separate_pairs")}
    plans = [write_rows(folder, entry, layout, PAIR_LENGTH) for entry in corpora for layout in layouts[entry.kind]]
    save_index(folder, corpora, plans)
    ramp: dict[str, object] = {"start": 0.5, "end": 0.3}
    objectives = {"mlm": {"share": ramp}, "tlm": {"share": {"start": 0.3, "end": 0.5}}, "contrastive": {"share": 0.2}}
    return recipe_of(objectives, PAIR_LENGTH, micro_batches=1, steps=2 * LATE_STEP)


def first_batch(folder: Path, step: int) -> None:
    """Print how long a process takes from its start to its first batch, as JSON."""
    recipe = Recipe.model_validate_json((folder / "recipe.json").read_text(encoding="utf-8"))
    loaded, processor = time.perf_counter(), time.process_time()
    batches = loader_of(folder, recipe).batch(step)
    took = {"modules": loaded - STARTED, "wall": time.perf_counter() - loaded, "processor": time.process_time() - processor}
    print(json.dumps({**took, "tokens": sum(batch.tokens for batch in batches)}))


def measure_resume() -> tuple[float, dict[str, object]]:
    """Return the time to the first batch at step 0 over that at `LATE_STEP`, medians over processes that take turns."""
    found: dict[int, list[dict[str, Any]]] = {0: [], LATE_STEP: []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "recipe.json").write_text(many_corpora(folder).model_dump_json(), encoding="utf-8")
        for _ in range(STARTS):
            for step, of_step in found.items():
                command = [sys.executable, str(Path(__file__).resolve()), "first-batch", name, str(step)]
                printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                of_step.append(json.loads(printed))
    seconds: dict[str, dict[int, float]] = {}
    for clock in ("wall", "processor"):
        seconds[clock] = {step: statistics.median(each[clock] for each in of_step) for step, of_step in found.items()}
    ratios = {clock: of_clock[0] / of_clock[LATE_STEP] for clock, of_clock in seconds.items()}
    return ratios["wall"], {"ratios": ratios, "seconds_to_first_batch": seconds, "processes": found}


def main() -> None:
    """Measure everything, print the ratios and write ``results/data.json``."""
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["first-batch"]:
        first_batch(Path(sys.argv[2]), int(sys.argv[3]))
        return
    ratios: dict[str, float] = {}
    raw: dict[str, object] = {"peer": "datasets + transformers.DataCollatorForLanguageModeling in a torch DataLoader"}
    labels = {f"loader_{length}_{spread}": (length, *sizes) for length in LENGTHS for spread, sizes in SPREADS.items()}
    for label, setting in labels.items():
        ratios[label], raw[label] = measure_loader(*setting)
        figures: Any = raw[label]
        ours, peer = (figures["tokens_per_second"][side]["wall"] for side in ("ours", "peer"))
        print(
            f"{label}: ours {ours:,.0f} tokens/s, peer {peer:,.0f} tokens/s, "
            f"ratio {ratios[label]:.2f} (processor time {figures['ratios']['processor']:.2f})",
            flush=True,
        )
    ratios["loader"] = min(ratios[label] for label in labels)
    ratios["pairs"], raw["pairs"] = measure_pairs()
    print(f"pairs: useful share {raw['pairs']['useful_share']}, ratio {ratios['pairs']:.2f}", flush=True)  # type: ignore[index]
    ratios["resume"], raw["resume"] = measure_resume()
    print(f"first batch: {raw['resume']['seconds_to_first_batch']} s, ratio {ratios['resume']:.2f}", flush=True)  # type: ignore[index]
    print(f"written: {write_results('data', ratios, raw)}")


if __name__ == "__main__":
    main()
