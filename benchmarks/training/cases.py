"""What is measured: the shapes of XLM-R, how they are fed, in which precision.

The peer's shapes are those of XLM-R (Conneau et al. 2020): 250,002 pieces, post-LN, learned positions, tied
output. A case is one shape, one kind of data and one precision; both sides get the same micro-batches.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

import torch

from xlm.config.model import ModelConfig
from xlm.training.precision import resolve_precision

Kind = Literal["monolingual", "pairs"]

VOCABULARY = 250_002
ROW_TOKENS = 256
MASK_RATE = 0.15
STEP_TOKENS = 8_192
LEARNING_RATE = 1e-4


@dataclass(frozen=True)
class Case:
    """One comparison; a step takes as many micro-batches as give ``step_tokens`` real tokens."""

    width: int
    layers: int
    heads: int
    kind: Kind
    precision: str
    rows: int  # of ``row_tokens`` in a micro-batch
    rounds: int  # timed optimizer steps of each side
    vocabulary: int = VOCABULARY
    row_tokens: int = ROW_TOKENS
    step_tokens: int = STEP_TOKENS
    learning_rate: float = LEARNING_RATE
    seed: int = 0

    @property
    def name(self) -> str:
        """A label for tables, for example ``monolingual_768x12_fp32``."""
        return f"{self.kind}_{self.width}x{self.layers}_{self.precision}"

    @property
    def texts(self) -> int:
        """Texts of a padded micro-batch; as many pairs as have about the positions of its full rows when padded to the longest.

        Half as many at d 768: logits and their gradients of 20 pairs as long as they come, 15 GB, do not fit beside the rest into 24.
        """
        if self.kind == "monolingual":
            return self.rows
        return self.rows * 5 // 2 if self.width < 768 else self.rows * 5 // 4

    @property
    def micro_batch_tokens(self) -> int:
        """Positions of a micro-batch of full rows, and the most that one of packed pairs has."""
        return self.rows * self.row_tokens

    @property
    def autocast_dtype(self) -> torch.dtype | None:
        """The type that autocast multiplies in, None for fp32 as it stands."""
        return torch.bfloat16 if self.precision == "bf16" else None

    def model_config(self) -> ModelConfig:
        """Return the sizes as ours are configured; dropout is 0 on both sides."""
        return ModelConfig(
            width=self.width,
            layers=self.layers,
            heads=self.heads,
            feed_forward=4 * self.width,
            max_positions=self.row_tokens,
            norm_position="post",
            token_types=1,
            norm_epsilon=1e-5,
        )

    def to_json(self) -> str:
        """Write the case as one argument of a command."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Case:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))


def precisions() -> tuple[str, ...]:
    """Return fp32, and bf16 where the processor multiplies it (elsewhere it is emulated, and says nothing)."""
    return ("fp32", "bf16") if resolve_precision("auto", torch.device("cpu")) == "bf16" else ("fp32",)
