"""Real shards of made-up tokens: three languages, two pair corpora, every objective, two variants."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from xlm.config.recipe import Recipe
from xlm.mixing.data_plan import DataPlan
from xlm.seeding import keyed_generator
from xlm.shards.index import PlanEntry, ShardIndex
from xlm.shards.reader import ShardSet, TokenShard
from xlm.shards.row_plan import document_segments, pack_rows, pair_segments
from xlm.shards.writer import ShardWriter

LENGTHS = (32, 64)
VARIANTS = 2


@dataclass(frozen=True)
class Pieces:
    """A vocabulary as far as batching looks at it."""

    size: int = 300
    special_ids: tuple[int, ...] = (0, 1, 2, 3, 4)
    bos_id: int = 2
    eos_id: int = 3
    mask_id: int = 4


@pytest.fixture(scope="session")
def pieces():
    return Pieces()


def write_corpus(folder, name, draw):
    languages = tuple(name.split("_"))
    kind = "pair" if len(languages) == 2 else "monolingual"
    writer = ShardWriter(
        folder, name, kind, languages, vocabulary_fingerprint="made-up", token_dtype=np.dtype(np.uint16), items_per_shard=70
    )
    for item in range(150):
        sides = [draw.integers(5, 300, draw.integers(1, 14)) for _ in languages]
        if kind == "monolingual" and item % 10 == 0:
            sides = [draw.integers(1, 300, 150)]  # longer than a row, and some of it unknown pieces
        writer.add(f"key{item % 40}" if kind == "pair" else f"{name}-{item}", *sides)
    return writer.close()


def plan_rows(folder, entry, objective, length, variant):
    parts = []
    for file in entry.files:
        shard = TokenShard.open(folder / file.path, entry.kind, "made-up")
        if objective == "mlm":
            segments = document_segments(shard.tokens[0], shard.offsets[0], {}, np.ones(300, dtype=bool), length=length)
        else:
            segments, _ = pair_segments(*(np.diff(offsets) for offsets in shard.offsets), objective=objective, length=length)
        generator = keyed_generator(entry.name, objective, length, variant, len(parts))
        parts.append(pack_rows(segments, objective=objective, length=length, generator=generator))
    firsts = np.cumsum([0, *(file.items for file in entry.files)])[:-1].tolist()
    plan = type(parts[0]).concatenate(parts, firsts)
    file = f"plans/{entry.name}-{objective}-{length}-v{variant}.arrow"
    plan.write(folder / file)
    return PlanEntry(entry.name, objective, length, variant, plan.rows, len(plan.segments), plan.fill(objective, length), file)


@pytest.fixture(scope="session")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    draw = np.random.default_rng(0)
    corpora = {name: write_corpus(folder, name, draw) for name in ("de", "en", "sw", "en_de", "en_sw")}
    plans = [
        plan_rows(folder, entry, objective, length, variant)
        for entry in corpora.values()
        for objective in (("mlm",) if entry.kind == "monolingual" else ("tlm", "contrastive"))
        for length in LENGTHS
        for variant in range(VARIANTS)
    ]
    ShardIndex("made-up", VARIANTS, corpora, {(plan.corpus, plan.objective, plan.length, plan.variant): plan for plan in plans}).save(
        folder
    )
    return ShardSet(folder, "made-up")


def build_recipe(phases=({},), **training):
    default = {
        "steps": 30,
        "sequence_length": 32,
        "sampling": {"kind": "temperature", "alpha": 0.5},
        "objectives": {"contrastive": {"share": 0.4}, "tlm": {"share": 0.3, "loss_weight": 0.5}, "mlm": {"share": 0.3}},
    }
    return Recipe.model_validate(
        {
            "name": "made-up",
            "seed": 11,
            "corpora": {"manifest": "none.yaml"},
            "vocabulary": "none.yaml",
            "embeddings": {"kind": "random"},
            "model": {"width": 8, "layers": 1, "heads": 1, "feed_forward": 8, "max_positions": 256},
            "phases": [{"name": f"phase{number}", **default, **phase} for number, phase in enumerate(phases)],
            "training": {"tokens_per_step": 640, "micro_batch_tokens": 320, "optimizer": {"learning_rate": 1e-3}, **training},
        }
    )


@pytest.fixture
def make_recipe():
    return build_recipe


@pytest.fixture
def two_phases():
    return build_recipe([{}, {"sequence_length": 64, "steps": 20, "mask_rate": 0.3}])


@pytest.fixture
def setting(shards, pieces, two_phases):
    """A plan over the shards, with what a loader needs."""
    return SimpleNamespace(plan=DataPlan(two_phases, shards.index), shards=shards, pieces=pieces, seed=two_phases.seed)
