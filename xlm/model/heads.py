"""The masked-language-model head of BERT and RoBERTa, up to the vocabulary projection."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from xlm.config.model import ModelConfig
from xlm.model.initialisation import unfilled_linear


class LanguageModelHead(nn.Module):
    """Dense, GELU, norm (Devlin et al. 2019); then a projection that is the token table when tied.

    A tied head owns no table: a parameter under one name only cannot be lost, saved twice or come apart.
    """

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.dense = unfilled_linear(config.width, config.width)
        self.norm = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))
        weight = None if config.tied_output else nn.Parameter(torch.empty(vocabulary_size, config.width))
        self.register_parameter("weight", weight)

    def forward(self, hidden: Tensor) -> Tensor:
        """Transform [P, width] into what the vocabulary projection reads, [P, width]."""
        return self.norm(F.gelu(self.dense(hidden)))  # type: ignore[no-any-return]
