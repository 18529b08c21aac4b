"""What is trained: two sizes of model on made-up text, and a small one whose losses are compared."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from data import VOCABULARY_SIZE, pairs_of, save_index, text, write_corpus, write_rows

from xlm.config.recipe import Recipe

ROW_TOKENS = 128
DOCUMENTS = 4_000
RANKS = 2  # whose losses are compared with one process's
CHECKPOINT_EVERY_STEPS = 500  # the default, over which a checkpoint's time is spread


@dataclass(frozen=True)
class LoopCase:
    """A model whose loop is held against bare steps; ``blocks`` of ``block_steps`` each way, the first not counted."""

    name: str
    width: int
    layers: int
    heads: int
    tokens_per_step: int
    micro_batch_tokens: int
    block_steps: int
    blocks: int
    stage: int = 2
    precision: str = "auto"

    def recipe(self) -> Recipe:
        """Return the recipe; a step more than the blocks have, for the loop to end with."""
        return recipe_of(
            self.width, self.layers, self.heads, self.tokens_per_step, self.micro_batch_tokens, 1 + self.block_steps * self.blocks,
            precision=self.precision, log_every_steps=self.block_steps,
        )  # fmt: skip

    def to_json(self) -> str:
        """Return the case for another process."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class LossCase:
    """A small model trained in fp32 by the engine at a ZeRO stage, or in plain PyTorch."""

    steps: int = 50
    width: int = 64
    layers: int = 2
    heads: int = 2
    tokens_per_step: int = 4_096
    micro_batch_tokens: int = 512

    def recipe(self) -> Recipe:
        """Return the recipe."""
        return recipe_of(self.width, self.layers, self.heads, self.tokens_per_step, self.micro_batch_tokens, self.steps, precision="fp32")


def recipe_of(width: int, layers: int, heads: int, tokens_per_step: int, micro_batch_tokens: int, steps: int, **training: object) -> Recipe:
    """Return a recipe of MLM and TLM over `write_shards`."""
    return Recipe.model_validate(
        {
            "name": "engine",
            "seed": 1,
            "corpora": {"manifest": "none"},
            "vocabulary": "none",
            "embeddings": {"kind": "random"},
            "model": {"width": width, "layers": layers, "heads": heads, "feed_forward": 4 * width, "max_positions": ROW_TOKENS},
            "phases": [
                {
                    "name": "only",
                    "steps": steps,
                    "sequence_length": ROW_TOKENS,
                    "sampling": {"kind": "temperature", "alpha": 0.5},
                    "objectives": {"mlm": {"share": 0.6}, "tlm": {"share": 0.4}},
                }
            ],
            "training": {
                "tokens_per_step": tokens_per_step,
                "micro_batch_tokens": micro_batch_tokens,
                "optimizer": {"learning_rate": 1e-3},
                "schedule": {"warmup_steps": 10},
                **training,
            },
        }
    )


def write_shards(folder: Path) -> None:
    """Write documents of two languages and pairs of both, with their rows."""
    corpora, plans = [], []
    for language in ("de", "en"):
        documents = text(DOCUMENTS * (ROW_TOKENS - 2), "engine", language).reshape(DOCUMENTS, -1)
        corpora.append(write_corpus(folder, language, [(document,) for document in documents]))
        plans.append(write_rows(folder, corpora[-1], "documents", ROW_TOKENS))
    corpora.append(write_corpus(folder, "de_en", pairs_of("engine")))
    plans.append(write_rows(folder, corpora[-1], "pairs", ROW_TOKENS))
    save_index(folder, corpora, plans)


__all__ = ["CHECKPOINT_EVERY_STEPS", "RANKS", "VOCABULARY_SIZE", "LoopCase", "LossCase", "write_shards"]
