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


def beyond_positions(position_ids: Tensor, max_positions: int) -> UserError:
    """Say that a sequence is longer than the positions that a model has."""
    return UserError(
        f"a sequence needs {int(position_ids.max()) + 1} positions, but the model has max_positions {max_positions}; "
        "shorten the phase's sequence_length or raise model.max_positions."
    )


class Embeddings(nn.Module):
    """Sum of the embeddings of each token, [T, embedding width]; post-norm models normalise it (BERT, Devlin et al. 2019).

    Ids without a row are not looked for, since on GPUs that would wait for the device (shards are checked when they are
    opened); where a look-up itself finds one, as on CPUs, it becomes a UserError.
    """

    def __init__(self, config: ModelConfig, vocabulary_size: int, language_count: int, key: DropoutKey) -> None:
        super().__init__()
        if config.language_embeddings and language_count < 1:
            raise UserError("the model has language embeddings, but no languages were given; set model.language_embeddings to false.")
        width = config.embedding_size
        self.scale = config.embedding_scale
        self.max_positions = config.max_positions
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
        embedded = self._tokens(input_ids, token_table)
        if self.scale != 1.0:
            embedded = embedded * self.scale
        embedded = self._with_positions(embedded, position_ids)
        if self.token_types is not None:
            of_type = self.token_types.weight[0] if token_type_ids is None else _looked_up(self.token_types, token_type_ids, "token type")
            embedded = embedded + of_type
        if self.languages is not None:
            if language_ids is None:
                raise UserError("this model has language embeddings; pass language_ids with every batch.")
            embedded = embedded + _looked_up(self.languages, language_ids, "language")
        if self.norm is not None:
            embedded = self.norm(embedded)
        return self.dropout(embedded)  # type: ignore[no-any-return]

    def _tokens(self, input_ids: Tensor, token_table: Tensor | None) -> Tensor:
        if token_table is None:
            return _looked_up(self.tokens, input_ids, "piece")
        try:
            return look_up(token_table, input_ids)
        except IndexError:
            raise _outside(input_ids, len(token_table), "piece") from None

    def _with_positions(self, embedded: Tensor, position_ids: Tensor) -> Tensor:
        try:
            if self.positions is not None:
                embedded = embedded + self.positions(position_ids)
            elif isinstance(self.fixed_positions, Tensor):
                embedded = embedded + self.fixed_positions[position_ids].to(embedded.dtype)
        except IndexError:
            raise beyond_positions(position_ids, self.max_positions) from None
        return embedded


def _looked_up(table: nn.Embedding, ids: Tensor, what: str) -> Tensor:
    try:
        rows: Tensor = table(ids)
    except IndexError:
        raise _outside(ids, table.num_embeddings, what) from None
    return rows


def _outside(ids: Tensor, rows: int, what: str) -> UserError:
    found = int(ids.max()) if int(ids.max()) >= rows else int(ids.min())
    return UserError(f"the batch holds {what} id {found}, but this model's go from 0 to {rows - 1}; give it data that was made for it.")
