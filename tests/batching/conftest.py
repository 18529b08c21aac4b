"""Real shards of made-up tokens: three languages, two pair corpora, every layout, two variants, three blocks each."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from xlm.config.phases import PAIR_OBJECTIVES
from xlm.config.recipe import Recipe
from xlm.mixing.data_plan import DataPlan
from xlm.mixing.leaves import Leaf
from xlm.seeding import keyed_generator
from xlm.shards.block_plan import block_plan
from xlm.shards.index import PlanEntry, PlanFile, ShardIndex
from xlm.shards.layouts import RULES, layout_of
from xlm.shards.reader import ShardSet, TokenShard
from xlm.shards.writer import ShardWriter, corpus_entry

sys.path.insert(0, str(Path(__file__).parent))  # reference_rows

LENGTHS = (32, 64)
VARIANTS = 2
ITEMS_PER_SHARD = 70
PIECES = 300


@dataclass(frozen=True)
class Pieces:
    """A vocabulary as far as batching looks at it; every third piece begins a word."""

    size: int = PIECES
    special_ids: tuple[int, ...] = (0, 1, 2, 3, 4)
    bos_id: int = 2
    eos_id: int = 3
    mask_id: int = 4
    is_word_start: np.ndarray = field(default_factory=lambda: np.arange(PIECES) % 3 == 0)


@pytest.fixture(scope="session")
def pieces():
    return Pieces()


def write_corpus(folder, name, draw, items=150):
    languages = tuple(name.split("_"))
    kind = "pair" if len(languages) == 2 else "monolingual"
    files = []
    for number, first in enumerate(range(0, items, ITEMS_PER_SHARD)):
        writer = ShardWriter(name, kind, languages, vocabulary_fingerprint="made-up", token_dtype=np.dtype(np.uint16))
        for item in range(first, min(items, first + ITEMS_PER_SHARD)):
            sides = [draw.integers(5, PIECES, draw.integers(1, 14)) for _ in languages]
            if kind == "pair":
                writer.add(f"key{item % 40}", *sides)
                continue
            if item % 10 == 0:
                sides = [draw.integers(1, PIECES, 150)]  # longer than a row, and some of it special pieces
            sentences = sorted({0, *draw.integers(0, sides[0].size, 1 + sides[0].size // 6).tolist()})
            writer.add(f"{name}-{item}", *sides, sentence_starts=sentences if item % 4 else None)
        files.append(writer.write(folder, number))
    return corpus_entry(name, kind, languages, files)


def plan_rows(folder, entry, layout, length, variant):
    files, plans = [], []
    for number, file in enumerate(entry.files):
        shard = TokenShard.open(folder / file.path, entry.kind, "made-up")
        generator = keyed_generator(entry.name, layout, length, variant, number)
        plan, _ = block_plan(shard, layout, length, is_word_start=Pieces().is_word_start, generator=generator)
        path = f"plans/{entry.name}-{layout}-{length}-v{variant}-{number}.arrow"
        facts = plan.write(folder / path)
        files.append(PlanFile(path, plan.rows, facts.size_bytes, facts.sha256))
        plans.append(plan)
    rows, segments, tokens = (sum(of) for of in zip(*((p.rows, len(p.segments), p.text_tokens) for p in plans), strict=True))
    return PlanEntry(entry.name, layout, length, variant, rows, segments, tokens, 0.9, tuple(files))


@pytest.fixture(scope="session")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    draw = np.random.default_rng(0)
    corpora = {name: write_corpus(folder, name, draw) for name in ("de", "en", "sw", "en_de", "en_sw")}
    plans = [
        plan_rows(folder, entry, layout, length, variant)
        for entry in corpora.values()
        for layout, rule in RULES.items()
        if rule.kind == entry.kind
        for length in LENGTHS
        for variant in range(VARIANTS)
    ]
    ShardIndex("made-up", VARIANTS, corpora, {(plan.corpus, plan.layout, plan.length, plan.variant): plan for plan in plans}).save(folder)
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


class LeavesOnly:
    """What building rows asks of a data plan, for one phase with every objective; which rows there are is up to the test."""

    def __init__(self, recipe, index):
        self.recipe = recipe
        self.leaves = tuple(
            Leaf(objective, entry.name, entry.languages)
            for objective in sorted(recipe.phases[0].objectives)
            for entry in index.of_kind("pair" if objective in PAIR_OBJECTIVES else "monolingual")
        )
        self.languages = ("de", "en", "sw")

    def layout(self, phase, leaf):
        objective = self.leaves[leaf].objective
        return layout_of(objective, self.recipe.phases[phase].objectives[objective])


@pytest.fixture(scope="session")
def every_objective(shards):
    """Return (options of tlm, of text objectives) -> a plan with all seven objectives."""

    def make(form="infoxlm", rows="documents", **phase):
        text = {objective: {"share": 0.1, "rows": rows} for objective in ("mlm", "clm", "rtd")}
        others = {
            "tlm": {"share": 0.2, "form": form},
            **{objective: {"share": 0.2} for objective in ("contrastive", "sop")},
            "nsp": {"share": 0.1},
        }
        return LeavesOnly(build_recipe([{"objectives": {**text, **others}, "mask_rate": 0.25, **phase}]), shards.index)

    return make
