"""What the first block reads: tokens, positions, and where the model has them types and languages."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xlm.config.model import ModelConfig
from xlm.errors import UserError
from xlm.model.dropout import Dropout, DropoutKey
from xlm.model.initialisation import norm_layer, unfilled_embedding
from xlm.model.tied_table import look_up


def sinusoidal_positions(count: int, width: int) -> Tensor:
    """Return [count, width]: sin(p / 10000^(2i / width)) in even columns 2i, cos in odd ones (Vaswani et al. 2017)."""
    column = torch.arange(width, dtype=torch.float64)
    angle = torch.arange(count, dtype=torch.float64)[:, None] / 10000.0 ** (2 * (column // 2) / width)
    table = torch.empty(count, width, dtype=torch.float64)
    table[:, 0::2], table[:, 1::2] = angle[:, 0::2].sin(), angle[:, 1::2].cos()
    return table.float()


class Embeddings(nn.Module):
    """Sum of the embeddings of each token, [T, embedding width]; post-norm models normalise it (BERT, Devlin et al. 2019)."""

    def __init__(self, config: ModelConfig, vocabulary_size: int, language_count: int, key: DropoutKey) -> None:
        super().__init__()
        if config.language_embeddings and language_count < 1:
            raise UserError("the model has language embeddings, but no languages were given; set model.language_embeddings to false.")
        width = config.embedding_size
        self.scale = config.embedding_scale
        self.tokens = unfilled_embedding(vocabulary_size, width)
        self.positions = unfilled_embedding(config.max_positions, width) if config.positions == "learned" else None
        fixed = sinusoidal_positions(config.max_positions, width) if config.positions == "sinusoidal" else None
        self.register_buffer("fixed_positions", fixed, persistent=False)
        self.token_types = unfilled_embedding(config.token_types, width) if config.token_types else None
        self.languages = unfilled_embedding(language_count, width) if config.language_embeddings else None
        self.norm = norm_layer(config, width) if config.has_embedding_norm else None
        self.dropout = Dropout(config.dropout, key)

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        token_type_ids: Tensor | None,
        language_ids: Tensor | None,
        token_table: Tensor | None = None,
    ) -> Tensor:
        """Embed [T] ids as [T, embedding width]; types that are not given are 0, languages have to be given.

        ``token_table`` stands for the token embeddings where their gradient is shared with the projection's.
        """
        embedded = self.tokens(input_ids) if token_table is None else look_up(token_table, input_ids)
        if self.scale != 1.0:
            embedded = embedded * self.scale
        if self.positions is not None:
            embedded = embedded + self.positions(position_ids)
        elif isinstance(self.fixed_positions, Tensor):
            embedded = embedded + self.fixed_positions[position_ids].to(embedded.dtype)
        if self.token_types is not None:
            embedded = embedded + (self.token_types.weight[0] if token_type_ids is None else self.token_types(token_type_ids))
        if self.languages is not None:
            if language_ids is None:
                raise UserError("this model has language embeddings; pass language_ids with every batch.")
            embedded = embedded + self.languages(language_ids)
        if self.norm is not None:
            embedded = self.norm(embedded)
        return self.dropout(embedded)  # type: ignore[no-any-return]
