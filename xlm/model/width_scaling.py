"""µP: how first values, learning rates and multipliers follow the width (Yang et al. 2022, Tensor Programs V, table 8).

With r = base width / width: hidden matrices (fan-in and fan-out both grow) start with a deviation of sqrt(r) times
the base's and learn at r times its rate; what reads the width into a fixed number of outputs (vocabulary, classes) is
multiplied by r; embeddings, norms and biases stay; attention divides by the head width instead of its root. At the
base's own width nothing changes. Of the table's three equal forms this is the one that a tied table allows: as
embeddings and as projection it starts and learns alike, and the multiplier stands beside it.

Width means that of states, of heads or their number, and of the feed-forward part, all in proportion; layers, rows and
vocabulary stay. Two things follow that the table leaves to its text (section B.3): AdamW multiplies its decay by the learning
rate, so that of hidden matrices is divided by r to decay as much at every width; and all matrices' gradients shrink as r,
so Adam's epsilon has to follow them.
"""

from __future__ import annotations

from dataclasses import dataclass

from xlm.config.model import ModelConfig

# Matrices from width to width, by the ends of their names in `PretrainingModel`.
_HIDDEN = (
    "attention.qkv.weight",
    "attention.output.weight",
    "feed_forward.inner.weight",
    "feed_forward.output.weight",
    "head.dense.weight",
    "head.pooler.weight",
)


@dataclass(frozen=True)
class WidthScaling:
    """The factors of one model; all 1 without ``width_scaling``."""

    ratio: float  # base width / width
    attention_scale: float | None  # None: 1 / sqrt(head width)

    @classmethod
    def of(cls, config: ModelConfig) -> WidthScaling:
        """Return the factors of a configuration."""
        if config.width_scaling is None:
            return cls(1.0, None)
        base = config.width_scaling.base_width / config.width_scaling.base_heads
        return cls(config.width_scaling.base_width / config.width, base**0.5 / (config.width // config.heads))

    def initial_scale(self, name: str) -> float:
        """Return the factor of a parameter's initial deviation."""
        return self.ratio**0.5 if is_hidden_matrix(name) else 1.0

    def learning_rate_scale(self, name: str) -> float:
        """Return the factor of a parameter's learning rate under Adam."""
        return self.ratio if is_hidden_matrix(name) else 1.0

    def weight_decay_scale(self, name: str) -> float:
        """Return the factor of a parameter's decoupled weight decay, which the learning rate multiplies again."""
        return 1.0 / self.learning_rate_scale(name)

    @property
    def epsilon_scale(self) -> float:
        """Return the factor of Adam's epsilon."""
        return self.ratio

    @property
    def output_scale(self) -> float:
        """Return the factor of vocabulary and class scores."""
        return self.ratio


def is_hidden_matrix(name: str) -> bool:
    """Whether both sides of a parameter, by its name in `PretrainingModel`, grow with the width."""
    return name.endswith(_HIDDEN)
