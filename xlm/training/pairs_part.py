"""The contrastive part of a micro-batch's forward pass: from states of its sentences to the loss of the step's pairs.

XLCO (InfoXLM, Chi et al. 2021) by options: which layer's states and how they are pooled, pairs of earlier steps as
negatives, keys from a slow copy of the encoder. What goes from step to step (`state`) is the same on every rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from xlm.batching.packed_batch import PackedBatch
from xlm.config.training import ContrastiveSection
from xlm.errors import UserError
from xlm.model.pooling import pool, pooled_tokens
from xlm.model.pretraining import PretrainingModel
from xlm.training.contrastive import Pairs, gather_pairs, pair_losses, text_hashes, unit_vectors
from xlm.training.momentum import MomentumEncoder
from xlm.training.pair_queue import PairQueue
from xlm.training.statistics import LossStatistics
from xlm.training.step_context import CONTRASTIVE, StepContext

_QUEUE, _MOMENTUM = "queue.", "momentum."


class PairsPart:
    """Pairs of one step, negatives of each other on all ranks; contrastive sequences come in twos, source then translation."""

    def __init__(self, section: ContrastiveSection, model: PretrainingModel, statistics: LossStatistics) -> None:
        """Copy the model's encoder where keys come from a slow one. Raises UserError for a layer that the model lacks."""
        last = model.config.layers
        if section.layer is not None and section.layer > last:
            raise UserError(
                f"training.contrastive.layer is {section.layer}, but the model has layers 1 to {last} (0: the embeddings); "
                "lower it, or leave it out for the last."
            )
        self.section = section
        self.layer = None if section.layer == last else section.layer  # None: the last
        self._model, self._statistics = model, statistics
        self._momentum = None if section.momentum is None else MomentumEncoder(model.encoder, section.momentum, self.layer)
        self._queue: PairQueue | None = None

    def tokens(self, batch: PackedBatch) -> Tensor:
        """Return the tokens [N], ascending, whose states of `layer` `loss` reads."""
        return pooled_tokens(batch.cu_seqlens, batch.sequence_objective == CONTRASTIVE, self.section.pooling)

    def loss(self, batch: PackedBatch, states: Tensor, context: StepContext) -> Tensor:
        """Return the weighted loss of the step, the same on every rank, from this one's ``states`` [N, width] of `tokens`.

        It is called once in a step that has pairs on any rank, by all of them: queue and slow encoder move on with it.
        """
        own = self._pairs(batch, states)
        group = gather_pairs(own, context.pairs_by_rank)
        keys = None if self._momentum is None else gather_pairs(self._keys(own, batch, states.dtype, self._momentum), context.pairs_by_rank)
        queue = self._opened_queue()
        losses = pair_losses(group, self.section.temperature, keys, queue.pairs() if queue else None)
        self._count(batch, own, group, losses)
        if queue is not None:
            self._push(queue, group if keys is None else keys)
        part = context.loss_weight("contrastive") * losses.mean()
        # On a rank without pairs the loss is a constant; the other parts keep their graph.
        return part if part.requires_grad else part.detach()

    def state(self) -> dict[str, Tensor]:
        """Return what the next step needs of this one, by name; nothing where neither queue nor slow encoder is asked for."""
        queue = self._opened_queue()
        found = {} if queue is None else {_QUEUE + name: tensor for name, tensor in queue.state().items()}
        if self._momentum is not None:
            found |= {_MOMENTUM + name: tensor for name, tensor in self._momentum.state().items()}
        return found

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take up `state`; raises UserError for that of another recipe."""
        queue = self._opened_queue()
        if queue is not None:
            queue.load(_below(_QUEUE, state))
        if self._momentum is not None:
            self._momentum.load(_below(_MOMENTUM, state))

    def _pairs(self, batch: PackedBatch, states: Tensor) -> Pairs:
        chosen = torch.nonzero(batch.sequence_objective == CONTRASTIVE).squeeze(1)
        lengths = batch.cu_seqlens.diff()[chosen]
        vectors = unit_vectors(pool(states, lengths, self.section.pooling))
        texts = text_hashes(batch.input_ids, batch.cu_seqlens)[chosen]
        source = chosen[0::2]
        return Pairs(vectors[0::2], vectors[1::2], batch.pair_key[source], batch.pair_index[source], texts.view(-1, 2))

    def _keys(self, own: Pairs, batch: PackedBatch, dtype: torch.dtype, momentum: MomentumEncoder) -> Pairs:
        """Return a rank's pairs as the slow encoder sees them, after it has followed."""
        momentum.to(self._device)
        momentum.follow(self._model.encoder)
        if own.keys.numel() == 0:
            return own.with_vectors(own.sources.detach(), own.targets.detach())
        sentences = _contrastive_alone(batch)
        everything = torch.ones_like(sentences.sequence_objective, dtype=torch.bool)
        needed = pooled_tokens(sentences.cu_seqlens, everything, self.section.pooling)
        states = momentum.encode(sentences, needed, dtype)
        vectors = unit_vectors(pool(states, sentences.cu_seqlens.diff(), self.section.pooling))
        return own.with_vectors(vectors[0::2], vectors[1::2])

    def _count(self, batch: PackedBatch, own: Pairs, group: Pairs, losses: Tensor) -> None:
        mine = torch.isin(group.indices, own.indices)
        first = batch.cu_seqlens[:-1].long()[batch.sequence_objective == CONTRASTIVE]
        language = batch.language_ids[first[1::2]][torch.argsort(own.indices)]
        self._statistics.add(torch.full_like(language, CONTRASTIVE), language, losses[mine])

    def _push(self, queue: PairQueue, pairs: Pairs) -> None:
        # A step that diverged is skipped; what it made would stay for many.
        if bool(torch.isfinite(pairs.sources).all() & torch.isfinite(pairs.targets).all()):
            queue.push(pairs)

    def _opened_queue(self) -> PairQueue | None:
        if self._queue is None and self.section.queue_pairs:
            self._queue = PairQueue(self.section.queue_pairs, self._model.config.width, self._device)
        return self._queue

    @property
    def _device(self) -> torch.device:
        return next(self._model.parameters()).device


def _contrastive_alone(batch: PackedBatch) -> PackedBatch:
    """Return the contrastive sequences of a batch, which predict nothing."""
    chosen = batch.sequence_objective == CONTRASTIVE
    lengths = batch.cu_seqlens.diff()
    of_token = torch.repeat_interleave(chosen, lengths)
    kept = lengths[chosen]
    columns = ("input_ids", "position_ids", "token_type_ids", "language_ids")
    return replace(
        batch,
        **{name: getattr(batch, name)[of_token] for name in columns},
        cu_seqlens=torch.cat([kept.new_zeros(1), kept.cumsum(0)]).to(batch.cu_seqlens.dtype),
        sequence_objective=batch.sequence_objective[chosen],
    )


def _below(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
