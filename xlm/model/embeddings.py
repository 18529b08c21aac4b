"""What the first block reads: tokens, learned positions, and where the model has them types and languages."""

from __future__ import annotations

from torch import Tensor, nn

from xlm.config.model import ModelConfig
from xlm.errors import UserError
from xlm.model.dropout import Dropout, DropoutKey
from xlm.model.initialisation import unfilled_embedding


class Embeddings(nn.Module):
    """Sum of the embeddings of each token; post-LN models normalise it (BERT, Devlin et al. 2019)."""

    def __init__(self, config: ModelConfig, vocabulary_size: int, language_count: int, key: DropoutKey) -> None:
        super().__init__()
        if config.language_embeddings and language_count < 1:
            raise UserError("the model has language embeddings, but no languages were given; set model.language_embeddings to false.")
        self.scale = config.embedding_scale
        self.max_positions = config.max_positions
        self.tokens = unfilled_embedding(vocabulary_size, config.width)
        self.positions = unfilled_embedding(config.max_positions, config.width)
        self.token_types = unfilled_embedding(config.token_types, config.width) if config.token_types else None
        self.languages = unfilled_embedding(language_count, config.width) if config.language_embeddings else None
        self.norm = nn.LayerNorm(config.width, eps=config.norm_epsilon) if config.norm_position == "post" else None
        self.dropout = Dropout(config.dropout, key)

    def forward(self, input_ids: Tensor, position_ids: Tensor, token_type_ids: Tensor | None, language_ids: Tensor | None) -> Tensor:
        """Embed [T] ids as [T, width]; types that are not given are 0, languages have to be given."""
        embedded = self.tokens(input_ids)
        if self.scale != 1.0:
            embedded = embedded * self.scale
        embedded = embedded + self.positions(position_ids)
        if self.token_types is not None:
            embedded = embedded + (self.token_types.weight[0] if token_type_ids is None else self.token_types(token_type_ids))
        if self.languages is not None:
            if language_ids is None:
                raise UserError("this model has language embeddings; pass language_ids with every batch.")
            embedded = embedded + self.languages(language_ids)
        if self.norm is not None:
            embedded = self.norm(embedded)
        return self.dropout(embedded)  # type: ignore[no-any-return]
