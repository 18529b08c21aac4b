"""The contrastive part of a micro-batch's forward pass: from states of its sentences to the loss of the step's pairs."""

from __future__ import annotations

import torch
from torch import Tensor

from xlm.batching.packed_batch import PackedBatch
from xlm.config.recipe import ContrastiveSection
from xlm.model.pooling import mean_pool
from xlm.training.contrastive import Pairs, gather_pairs, pair_losses, unit_vectors
from xlm.training.statistics import LossStatistics
from xlm.training.step_context import CONTRASTIVE, StepContext


class PairsPart:
    """Pairs of one step, negatives of each other on all ranks; contrastive sequences come in twos, source then translation."""

    def __init__(self, section: ContrastiveSection, statistics: LossStatistics) -> None:
        self.section = section
        self._statistics = statistics

    def tokens(self, batch: PackedBatch) -> Tensor:
        """Return the tokens [N], ascending, whose states `loss` reads: those of contrastive sequences."""
        of_token = torch.repeat_interleave(batch.sequence_objective, batch.cu_seqlens.diff(), output_size=batch.tokens)
        return torch.nonzero(of_token == CONTRASTIVE).squeeze(1)

    def loss(self, batch: PackedBatch, states: Tensor, context: StepContext) -> Tensor:
        """Return the weighted loss of the step, the same on every rank, from this one's ``states`` [N, width] of `tokens`."""
        chosen = torch.nonzero(batch.sequence_objective == CONTRASTIVE).squeeze(1)
        source, target = chosen[0::2], chosen[1::2]
        lengths = batch.cu_seqlens.diff()[chosen]
        vectors = unit_vectors(mean_pool(states, torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])))
        own = Pairs(vectors[0::2], vectors[1::2], batch.pair_key[source], batch.pair_index[source])
        group = gather_pairs(own, context.pairs_by_rank)
        losses = pair_losses(group, self.section.temperature)
        mine = torch.isin(group.indices, own.indices)
        language = batch.language_ids[batch.cu_seqlens[target].long()][torch.argsort(own.indices)]
        self._statistics.add(torch.full_like(language, CONTRASTIVE), language, losses[mine])
        part = context.loss_weight("contrastive") * losses.mean()
        # On a rank without pairs the loss is a constant; the other parts keep their graph.
        return part if part.requires_grad else part.detach()
