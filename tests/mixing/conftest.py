"""A shards index in memory and recipes over it: planning reads nothing else."""

import pytest

from xlm.config.recipe import Recipe
from xlm.shards.index import CorpusEntry, PlanEntry, ShardIndex

TOKENS = {"en": 900_000, "de": 90_000, "sw": 10_000, "en_de": 60_000, "en_sw": 6_000, "de_sw": 500}
ROWS_AT_64 = {"en": 301, "de": 57, "sw": 7, "en_de": 41, "en_sw": 5, "de_sw": 1}


def build_index(tokens=TOKENS, rows=ROWS_AT_64, lengths=(64, 128), variants=2):
    corpora, plans = {}, {}
    for name, count in tokens.items():
        languages = tuple(name.split("_"))
        kind = "pair" if len(languages) == 2 else "monolingual"
        corpora[name] = CorpusEntry(name, kind, languages, 10, count, ())
        for objective in ("tlm", "contrastive") if kind == "pair" else ("mlm",):
            for length in lengths:
                for variant in range(variants):
                    # Variants differ in length, as best-fit packing of another order does.
                    planned = (rows[name] + variant * (name != "de_sw")) * 64 // length or rows[name]
                    plans[name, objective, length, variant] = PlanEntry(name, objective, length, variant, planned, 1, 1.0, "")
    return ShardIndex("fingerprint", variants, corpora, plans)


def build_recipe(phases=None, *, seed=3, **training):
    default = {
        "name": "short",
        "steps": 200,
        "sequence_length": 64,
        "sampling": {"kind": "temperature", "alpha": 0.5},
        "objectives": {"contrastive": {"share": 0.5}, "tlm": {"share": 0.3, "loss_weight": 0.5}, "mlm": {"share": 0.2}},
    }
    given = [{"name": f"phase{number}", **default, **phase} for number, phase in enumerate(phases)] if phases else [default]
    for number, phase in enumerate(given):
        phase["name"] = f"phase{number}"
    return Recipe.model_validate(
        {
            "name": "made-up",
            "seed": seed,
            "corpora": {"manifest": "none.yaml"},
            "vocabulary": "none.yaml",
            "embeddings": {"kind": "random"},
            "model": {"width": 8, "layers": 1, "heads": 1, "feed_forward": 8, "max_positions": 256},
            "phases": given,
            "training": {"tokens_per_step": 1280, "micro_batch_tokens": 640, "optimizer": {"learning_rate": 1e-3}, **training},
        }
    )


@pytest.fixture
def make_index():
    return build_index


@pytest.fixture
def make_recipe():
    return build_recipe
