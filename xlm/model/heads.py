"""What reads hidden states: the vocabulary, two classes a sequence, two classes a token."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xlm.config.model import ModelConfig
from xlm.model.dropout import Dropout, DropoutKey
from xlm.model.feed_forward import activation
from xlm.model.initialisation import norm_layer, unfilled_linear
from xlm.model.width_scaling import WidthScaling


class LanguageModelHead(nn.Module):
    """Dense, activation, norm (Devlin et al. 2019), or nothing (XLM); then a projection that is the token table when tied.

    A tied head owns no table: a parameter under one name only cannot be lost, saved twice or come apart.
    """

    bias: nn.Parameter | None
    weight: nn.Parameter | None

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.scale = WidthScaling.of(config).output_scale
        self.input_norm = norm_layer(config, config.width) if config.final_norm == "head" else None
        self.activation = activation(config)
        transforms = config.head_transform
        self.dense = unfilled_linear(config.width, config.embedding_size, bias=config.biases) if transforms else None
        self.norm = norm_layer(config, config.embedding_size) if transforms else None
        self.register_parameter("bias", nn.Parameter(torch.zeros(vocabulary_size)) if config.output_bias else None)
        weight = None if config.tied_output else nn.Parameter(torch.empty(vocabulary_size, config.embedding_size))
        self.register_parameter("weight", weight)

    def forward(self, hidden: Tensor) -> Tensor:
        """Transform [P, width] into what the vocabulary projection reads, [P, embedding width]."""
        if self.input_norm is not None:
            hidden = self.input_norm(hidden)
        if self.dense is not None and self.norm is not None:
            hidden = self.norm(self.activation(self.dense(hidden)))
        return hidden if self.scale == 1.0 else hidden * self.scale


class SentenceHead(nn.Module):
    """Dense and tanh on the first token, then two classes: NSP (Devlin et al. 2019), SOP (Lan et al. 2020)."""

    def __init__(self, config: ModelConfig, key: DropoutKey) -> None:
        super().__init__()
        self.scale = WidthScaling.of(config).output_scale
        self.pooler = unfilled_linear(config.width, config.width, bias=config.biases)
        self.dropout = Dropout(config.dropout, key)
        self.classifier = unfilled_linear(config.width, 2, bias=config.output_bias)

    def forward(self, first: Tensor) -> Tensor:
        """Score the first tokens of sequences, [S, width] to [S, 2]."""
        return self.classifier(self.dropout(torch.tanh(self.pooler(first))) * self.scale)  # type: ignore[no-any-return]


class DiscriminatorHead(nn.Module):
    """Whether each token was replaced (ELECTRA, Clark et al. 2020): dense, activation, one score."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.scale = WidthScaling.of(config).output_scale
        self.activation = activation(config)
        self.dense = unfilled_linear(config.width, config.width, bias=config.biases)
        self.score = unfilled_linear(config.width, 1, bias=config.output_bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """Score [T, width] as [T]; above 0: replaced."""
        scores: Tensor = self.score(self.activation(self.dense(hidden)) * self.scale)
        return scores.squeeze(-1)
