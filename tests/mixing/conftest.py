"""A shards index in memory and recipes over it: planning reads nothing else."""

from dataclasses import replace
from itertools import pairwise

import pytest

from xlm.config.recipe import Recipe
from xlm.shards.index import CorpusEntry, PlanEntry, PlanFile, ShardIndex

TOKENS = {"en": 900_000, "de": 90_000, "sw": 10_000, "en_de": 60_000, "en_sw": 6_000, "de_sw": 500}
SENTENCES = {"en": 30_000, "de": 5_000, "sw": 1_000, "en_de": 3_000, "en_sw": 300, "de_sw": 30}
ROWS_AT_64 = {"en": 301, "de": 57, "sw": 7, "en_de": 41, "en_sw": 5, "de_sw": 1}
PAIR_LAYOUTS = ("pairs", "pairs_xlm", "separate_pairs")
TEXT_LAYOUTS = ("documents", "full_sentences", "next_sentence", "sentence_order")


def block_files(rows, blocks):
    """Split rows over blocks, unevenly, with an empty one where there are enough."""
    cuts = sorted({rows * number**2 // blocks**2 for number in range(blocks + 1)})
    counts = [stop - start for start, stop in pairwise(cuts)]
    counts = [*counts[:1], 0, *counts[1:]] if blocks > 1 else counts or [0]
    return tuple(PlanFile(f"block-{number}", count, 0, "") for number, count in enumerate(counts))


def build_index(tokens=TOKENS, rows=ROWS_AT_64, lengths=(64, 128), variants=2, blocks=1):
    corpora, plans = {}, {}
    for name, count in tokens.items():
        languages = tuple(name.split("_"))
        kind = "pair" if len(languages) == 2 else "monolingual"
        corpora[name] = CorpusEntry(name, kind, languages, 10, count, SENTENCES.get(name, 10), ())
        for layout in PAIR_LAYOUTS if kind == "pair" else TEXT_LAYOUTS:
            for length in lengths:
                for variant in range(variants):
                    # Variants differ in length, as best-fit packing of another order does.
                    planned = (rows[name] + variant * (name != "de_sw")) * 64 // length or rows[name]
                    files = block_files(planned, blocks)
                    plans[name, layout, length, variant] = PlanEntry(
                        name, layout, length, variant, planned, planned, planned * (length - 4), 1.0, files
                    )
    return ShardIndex("fingerprint", variants, corpora, plans)


def with_variants(index, **rows):
    """Return the index with other numbers of rows in the variants of some corpora, at every layout and length."""
    plans = {}
    for key, plan in index.plans.items():
        corpus, _, length, variant = key
        planned = rows[corpus][variant] if corpus in rows else plan.rows
        text_tokens = planned * (length - 4)
        plans[key] = replace(plan, rows=planned, segments=planned, text_tokens=text_tokens, files=block_files(planned, 1))
    return replace(index, plans=plans)


def build_recipe(phases=None, *, seed=3, shuffle_window=None, **training):
    default = {
        "steps": 200,
        "sequence_length": 64,
        "sampling": {"kind": "temperature", "alpha": 0.5},
        "objectives": {"contrastive": {"share": 0.5}, "tlm": {"share": 0.3, "loss_weight": 0.5}, "mlm": {"share": 0.2}},
    }
    given = [{**default, **phase} for phase in phases] if phases else [default]
    return Recipe.model_validate(
        {
            "name": "made-up",
            "seed": seed,
            "corpora": {"manifest": "none.yaml"},
            "vocabulary": "none.yaml",
            "shards": {"shuffle_window": shuffle_window},
            "embeddings": {"kind": "random"},
            "model": {"width": 8, "layers": 1, "heads": 1, "feed_forward": 8, "max_positions": 256},
            "phases": [{"name": f"phase{number}", **phase} for number, phase in enumerate(given)],
            "training": {"tokens_per_step": 1280, "micro_batch_tokens": 640, "optimizer": {"learning_rate": 1e-3}, **training},
        }
    )


@pytest.fixture
def make_index():
    return build_index


@pytest.fixture
def make_recipe():
    return build_recipe


@pytest.fixture
def make_variants():
    return with_variants
