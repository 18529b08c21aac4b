"""One layer: attention and feed-forward, each with its residual and norm."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from xlm.config.model import ModelConfig
from xlm.model.attention import AttentionPlan, attend
from xlm.model.dropout import Dropout, DropoutKey
from xlm.model.feed_forward import FeedForward
from xlm.model.initialisation import norm_layer, unfilled_linear
from xlm.model.rotary import Rotation, rotate
from xlm.model.width_scaling import WidthScaling


@dataclass(frozen=True)
class LayerInput:
    """What a layer is told beside its hidden states."""

    plan: AttentionPlan
    rotation: Rotation | None = None  # rotary positions
    needed: Tensor | None = None  # [N] tokens whose states somebody reads; None: all
    keep: tuple[Tensor, Tensor] | None = None  # [T, 1] factors of the two residual branches: stochastic depth


class SelfAttention(nn.Module):
    """Multi-head attention with one projection for queries, keys and values (in this order)."""

    def __init__(self, config: ModelConfig, key: DropoutKey) -> None:
        super().__init__()
        self.heads = config.heads
        self.scale = WidthScaling.of(config).attention_scale
        self.qkv = unfilled_linear(config.width, 3 * config.width, bias=config.biases)
        self.output = unfilled_linear(config.width, config.width, bias=config.biases)
        self.weight_dropout = Dropout(config.dropout if config.attention_dropout is None else config.attention_dropout, key)

    def forward(self, hidden: Tensor, layer: LayerInput) -> Tensor:
        """Mix [T, width] inside each sequence; only the needed tokens come back, [N, width]."""
        qkv = self.qkv(hidden)
        if layer.rotation is not None:
            qkv = rotate(qkv, layer.rotation, self.heads)
        mixed = attend(qkv, layer.plan, scale=self.scale, dropout=self.weight_dropout)
        return self.output(_chosen(mixed, layer.needed))  # type: ignore[no-any-return]


class Block(nn.Module):
    """``post`` normalises after the residual (Vaswani et al. 2017), ``pre`` before each part (Xiong et al. 2020).

    A pre-norm stack whose embeddings are normalised already does not normalise them again in its first layer
    (``first_norm`` false; ModernBERT, Warner et al. 2024).
    """

    def __init__(self, config: ModelConfig, key: DropoutKey, *, first_norm: bool = True) -> None:
        super().__init__()
        self.pre = config.norm_position == "pre"
        self.attention = SelfAttention(config, key)
        self.attention_norm = norm_layer(config, config.width) if first_norm else nn.Identity()
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = norm_layer(config, config.width)
        self.dropout = Dropout(config.dropout, key)

    def forward(self, hidden: Tensor, layer: LayerInput) -> Tensor:
        """Map [T, width] to the states of the needed tokens, [N, width]."""
        if self.pre:
            hidden = _chosen(hidden, layer.needed) + self._branch(self.attention(self.attention_norm(hidden), layer), layer, 0)
            return hidden + self._branch(self.feed_forward(self.feed_forward_norm(hidden)), layer, 1)
        hidden = self.attention_norm(_chosen(hidden, layer.needed) + self._branch(self.attention(hidden, layer), layer, 0))
        return self.feed_forward_norm(hidden + self._branch(self.feed_forward(hidden), layer, 1))  # type: ignore[no-any-return]

    def _branch(self, values: Tensor, layer: LayerInput, number: int) -> Tensor:
        dropped: Tensor = self.dropout(values)
        if layer.keep is None:
            return dropped
        return dropped * _chosen(layer.keep[number], layer.needed).to(dropped.dtype)


def _chosen(values: Tensor, needed: Tensor | None) -> Tensor:
    return values if needed is None else values.index_select(0, needed)
