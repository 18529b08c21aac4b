"""Encoder and heads together: what the trainer wraps and a checkpoint holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from xlm.batching.packed_batch import OBJECTIVE_CODE, PackedBatch
from xlm.config.model import ModelConfig
from xlm.errors import UserError
from xlm.model.encoder import Encoder
from xlm.model.generator import Generator
from xlm.model.heads import DiscriminatorHead, LanguageModelHead, SentenceHead
from xlm.model.initialisation import initialise_parameters
from xlm.model.tied_table import share_table
from xlm.model.vocabulary_loss import VocabularyLoss, vocabulary_loss

_CLM = OBJECTIVE_CODE["clm"]


def encoder_inputs(config: ModelConfig, batch: PackedBatch, input_ids: Tensor | None = None) -> dict[str, Any]:
    """Return what an encoder is called with for a batch: its own ids or others [T], and those that the model has tables for."""
    return {
        "input_ids": batch.input_ids if input_ids is None else input_ids,
        "position_ids": batch.position_ids,
        "cu_seqlens": batch.cu_seqlens,
        "token_type_ids": batch.token_type_ids if config.token_types else None,
        "language_ids": batch.language_ids if config.language_embeddings else None,
        "causal": batch.sequence_objective == _CLM,
    }


@dataclass(frozen=True)
class TokenTables:
    """The token embeddings as they are looked up, and as the vocabulary projection reads them; see `share_table`."""

    lookup: Tensor  # [vocabulary, embedding width]
    projection: Tensor  # [vocabulary, embedding width]
    standing: Tensor | None = None  # the gradient that `vocabulary_loss` adds the projection's to


class PretrainingModel(nn.Module):
    """Hidden states of tokens, and losses at the predicted positions only.

    First values are drawn by ``seed``; None leaves them to whoever loads them.
    """

    # Whether a token table that has a gradient from earlier micro-batches gets further ones added in place. It is for
    # who takes every loss backward once, with `loss_factor`, and lets nobody else keep gradients; see `vocabulary_loss`.
    adds_to_gradients = False
    # What a loss is multiplied by before it goes backward (a loss scale): gradients that are taken early are taken of the product.
    loss_factor = 1.0

    def __init__(self, config: ModelConfig, vocabulary_size: int, language_count: int, *, seed: int | None = 0) -> None:
        super().__init__()
        self.config = config
        self.vocabulary_size = vocabulary_size
        self.encoder = Encoder(config, vocabulary_size, language_count, seed=None)
        key = self.encoder.dropout_key
        self.lm_head = LanguageModelHead(config, vocabulary_size) if config.language_model_head else None
        self.sentence_head = SentenceHead(config, key) if config.sentence_head else None
        self.discriminator_head = DiscriminatorHead(config) if config.discriminator_head else None
        self.generator = Generator(config, config.generator, vocabulary_size, key) if config.generator else None
        if seed is not None:
            self.initialise(seed)

    def token_tables(self) -> TokenTables:
        """Return the tables of one forward pass; all its look-ups and projections have to take them from here."""
        weight = self.encoder.embeddings.tokens.weight
        standing = self._standing(weight)
        lookup, projection = share_table(weight, standing)
        own = None if self.lm_head is None else self.lm_head.weight
        return TokenTables(lookup, own, self._standing(own)) if isinstance(own, Tensor) else TokenTables(lookup, projection, standing)

    def _standing(self, weight: Tensor) -> Tensor | None:
        gradient = weight.grad
        if not self.adds_to_gradients or gradient is None or not torch.is_grad_enabled():
            return None
        exact = gradient.layout == torch.strided and gradient.is_contiguous() and gradient.dtype.itemsize >= torch.float32.itemsize
        return gradient if exact else None

    def encode(self, batch: PackedBatch, tables: TokenTables, *, needed: Tensor | None = None, input_ids: Tensor | None = None) -> Tensor:
        """Encode a batch as [T, width], or as the states of ``needed`` [N] tokens; its CLM sequences causally.

        ``input_ids`` [T] stand for the batch's own where tokens were replaced. Ids that the model has no table for
        are left aside.
        """
        states: Tensor = self.encoder(**encoder_inputs(self.config, batch, input_ids), needed=needed, token_table=tables.lookup)
        return states

    def encode_layers(
        self, batch: PackedBatch, tables: TokenTables, *, needed: Tensor | None = None, input_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Encode a batch as the states of all layers, the embeddings first; the last one's are those of `encode`."""
        inputs = encoder_inputs(self.config, batch, input_ids)
        layers: tuple[Tensor, ...] = self.encoder(**inputs, needed=needed, token_table=tables.lookup, return_layers=True)
        return layers

    def vocabulary_loss(
        self,
        states: Tensor,
        labels: Tensor,
        weights: Tensor,
        tables: TokenTables,
        *,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
    ) -> VocabularyLoss:
        """Return the loss of states [P, width] against ``labels`` [P], each counted ``weights`` [P] times."""
        head = self._language_model_head()
        read = head(states)
        options = {"label_smoothing": label_smoothing, "z_loss": z_loss, "factor": self.loss_factor}
        return vocabulary_loss(read, tables.projection, head.bias, labels, weights, **options, standing=tables.standing)  # type: ignore[arg-type]

    def language_model_loss(self, batch: PackedBatch, weights: Tensor) -> VocabularyLoss:
        """Return the loss of a batch at its predicted positions [P], encoding no more than that needs."""
        tables = self.token_tables()
        states = self.encode(batch, tables, needed=batch.predict_positions)
        return self.vocabulary_loss(states, batch.labels, weights, tables)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return [n, vocabulary] scores for [n, width]; for reading a few predictions, not for training."""
        head = self._language_model_head()
        return F.linear(head(hidden), self.output_table, head.bias)

    @property
    def output_table(self) -> Tensor:
        """The vocabulary projection [vocabulary, embedding width]: the token embeddings when tied."""
        own = self._language_model_head().weight
        return own if isinstance(own, Tensor) else self.encoder.embeddings.tokens.weight

    def _language_model_head(self) -> LanguageModelHead:
        if self.lm_head is None:
            raise UserError("this model has no language-model head; set model.language_model_head to true.")
        return self.lm_head

    def tie_weights(self) -> None:
        """Make the projection the token table, if the configuration says so; a table loaded beside it is let go."""
        if self.config.tied_output and self.lm_head is not None:
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
