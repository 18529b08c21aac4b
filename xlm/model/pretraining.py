"""Encoder and language-model head together: what the trainer wraps and a checkpoint holds."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from xlm.batching.packed_batch import PackedBatch
from xlm.config.model import ModelConfig
from xlm.errors import UserError
from xlm.model.cross_entropy import chunked_cross_entropy
from xlm.model.encoder import Encoder
from xlm.model.heads import LanguageModelHead
from xlm.model.initialisation import initialise_parameters


class PretrainingModel(nn.Module):
    """Hidden states of every token, and losses at the predicted positions only."""

    def __init__(self, config: ModelConfig, vocabulary_size: int, language_count: int) -> None:
        super().__init__()
        self.config = config
        self.vocabulary_size = vocabulary_size
        self.encoder = Encoder(config, vocabulary_size, language_count)
        self.lm_head = LanguageModelHead(config, vocabulary_size)
        initialise_parameters(self.lm_head, config, seed=0, prefix="lm_head.")

    def forward(self, batch: PackedBatch) -> tuple[Tensor, Tensor]:
        """Return hidden states [T, width] and losses [P]."""
        hidden = self.hidden(batch)
        return hidden, self.token_losses(hidden, batch.predict_positions, batch.labels)

    def hidden(self, batch: PackedBatch) -> Tensor:
        """Encode a batch as [T, width]; ids that the model has no table for are left aside."""
        states: Tensor = self.encoder(
            batch.input_ids,
            batch.position_ids,
            batch.cu_seqlens,
            token_type_ids=batch.token_type_ids if self.config.token_types else None,
            language_ids=batch.language_ids if self.config.language_embeddings else None,
        )
        return states

    def token_losses(self, hidden: Tensor, positions: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy at ``positions`` [P] of [T, width] against ``labels`` [P], fp32 [P]."""
        predicted = self.lm_head(hidden.index_select(0, positions))
        return chunked_cross_entropy(predicted, self.output_table, self.lm_head.bias, labels)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return [n, vocabulary] scores for [n, width]; for reading a few predictions, not for training."""
        return F.linear(self.lm_head(hidden), self.output_table, self.lm_head.bias)

    @property
    def output_table(self) -> Tensor:
        """The vocabulary projection [vocabulary, width]: the token embeddings when tied."""
        own = self.lm_head.weight
        return own if isinstance(own, Tensor) else self.encoder.embeddings.tokens.weight

    def tie_weights(self) -> None:
        """Make the projection the token table, if the configuration says so; a table loaded beside it is let go."""
        if self.config.tied_output:
            self.lm_head.register_parameter("weight", None)

    def initialise(self, seed: int) -> None:
        """Draw all parameters anew; the same on every rank."""
        initialise_parameters(self, self.config, seed)

    def load_token_embeddings(self, table: Tensor) -> None:
        """Copy [vocabulary, width] into the token embeddings; raises UserError for another shape or for NaN."""
        own = self.encoder.embeddings.tokens.weight
        if table.shape != own.shape:
            raise UserError(
                f"initial token embeddings are {tuple(table.shape)}, but the model has {tuple(own.shape)}; "
                "run the stage that writes them again with this vocabulary and model.width."
            )
        if not bool(torch.isfinite(table).all()):
            raise UserError("initial token embeddings hold NaN or infinite values; run the stage that writes them again.")
        with torch.no_grad():
            own.copy_(table)
