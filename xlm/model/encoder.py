"""The encoder: a stack of attention and feed-forward blocks over packed sequences."""

from __future__ import annotations

from typing import Literal, overload

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from xlm.config.model import ModelConfig
from xlm.errors import UserError
from xlm.model.attention import AttentionPlan, attend, plan_attention
from xlm.model.dropout import Dropout, DropoutKey
from xlm.model.embeddings import Embeddings
from xlm.model.initialisation import initialise_parameters, unfilled_linear


class SelfAttention(nn.Module):
    """Multi-head attention with one projection for queries, keys and values (in this order)."""

    def __init__(self, config: ModelConfig, key: DropoutKey) -> None:
        super().__init__()
        self.qkv = unfilled_linear(config.width, 3 * config.width)
        self.output = unfilled_linear(config.width, config.width)
        self.weight_dropout = Dropout(config.dropout, key)

    def forward(self, hidden: Tensor, plan: AttentionPlan) -> Tensor:
        """Mix [T, width] inside each sequence."""
        return self.output(attend(self.qkv(hidden), plan, dropout=self.weight_dropout))  # type: ignore[no-any-return]


class FeedForward(nn.Module):
    """Two linear maps with an exact GELU between them (Hendrycks & Gimpel 2016)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = unfilled_linear(config.width, config.feed_forward)
        self.output = unfilled_linear(config.feed_forward, config.width)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map [T, width] to [T, width]."""
        return self.output(F.gelu(self.inner(hidden)))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention and feed-forward, each with its residual and norm.

    ``post`` normalises after the residual (Vaswani et al. 2017), ``pre`` before each part (Xiong et al. 2020).
    """

    def __init__(self, config: ModelConfig, key: DropoutKey) -> None:
        super().__init__()
        self.pre = config.norm_position == "pre"
        self.attention = SelfAttention(config, key)
        self.attention_norm = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.dropout = Dropout(config.dropout, key)

    def forward(self, hidden: Tensor, plan: AttentionPlan) -> Tensor:
        """Map [T, width] to [T, width]."""
        if self.pre:
            hidden = hidden + self.dropout(self.attention(self.attention_norm(hidden), plan))
            return hidden + self.dropout(self.feed_forward(self.feed_forward_norm(hidden)))  # type: ignore[no-any-return]
        hidden = self.attention_norm(hidden + self.dropout(self.attention(hidden, plan)))
        return self.feed_forward_norm(hidden + self.dropout(self.feed_forward(hidden)))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """Ids of packed sequences in, hidden states of their tokens out; deterministic until initialised anew."""

    def __init__(self, config: ModelConfig, vocabulary_size: int, language_count: int) -> None:
        super().__init__()
        self.config = config
        self.vocabulary_size = vocabulary_size
        self.language_count = language_count
        self.dropout_key = DropoutKey()
        self.embeddings = Embeddings(config, vocabulary_size, language_count, self.dropout_key)
        self.blocks = nn.ModuleList(Block(config, self.dropout_key) for _ in range(config.layers))
        ends_with_norm = config.norm_position == "pre" and config.final_norm
        self.final_norm = nn.LayerNorm(config.width, eps=config.norm_epsilon) if ends_with_norm else None
        initialise_parameters(self, config, seed=0)

    @overload
    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        cu_seqlens: Tensor,
        *,
        token_type_ids: Tensor | None = None,
        language_ids: Tensor | None = None,
        return_layers: Literal[False] = False,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        cu_seqlens: Tensor,
        *,
        token_type_ids: Tensor | None = None,
        language_ids: Tensor | None = None,
        return_layers: Literal[True],
    ) -> tuple[Tensor, ...]: ...

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        cu_seqlens: Tensor,
        *,
        token_type_ids: Tensor | None = None,
        language_ids: Tensor | None = None,
        return_layers: bool = False,
    ) -> Tensor | tuple[Tensor, ...]:
        """Encode [T] ids with boundaries [S + 1] as [T, width].

        With ``return_layers``: all layers + 1 states, the first the embeddings, the last after the final norm.
        Raises UserError for positions beyond the model's.
        """
        plan = plan_attention(cu_seqlens, self.config.heads)
        self._check_positions(plan, position_ids)
        hidden: Tensor = self.embeddings(input_ids, position_ids, token_type_ids, language_ids)
        layers = [hidden]
        for block in self.blocks:
            hidden = block(hidden, plan)
            layers.append(hidden)
        if self.final_norm is not None:
            hidden = self.final_norm(hidden)
            layers[-1] = hidden
        return tuple(layers) if return_layers else hidden

    def _check_positions(self, plan: AttentionPlan, position_ids: Tensor) -> None:
        # Positions that restart inside a sequence may stay below the limit: look only where it could be passed.
        limit = self.config.max_positions
        if plan.longest > limit and int(position_ids.max()) >= limit:
            raise UserError(
                f"a sequence needs {int(position_ids.max()) + 1} positions, but the model has max_positions {limit}; "
                "shorten the phase's sequence_length or raise model.max_positions."
            )
