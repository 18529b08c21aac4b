"""From a packed micro-batch to its part of the global loss; this module is what DeepSpeed wraps.

Promise 3: the parts of all micro-batches of all ranks sum to the loss of the global batch,

    sum(loss weight x token loss) / predicted tokens of the global batch + weight x mean pair loss,

so the split into ranks and micro-batches changes nothing. (A mean of means would weigh tokens by their
neighbours.) The contrastive value is the same on every rank; only rank 0 reports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from xlm.batching.packed_batch import OBJECTIVE_CODE, OBJECTIVES, PackedBatch
from xlm.config.phases import Phase
from xlm.model.pooling import mean_pool
from xlm.model.pretraining import PretrainingModel
from xlm.training.contrastive import Pairs, gather_pairs, pair_losses, unit_vectors
from xlm.training.statistics import LossStatistics

CONTRASTIVE = OBJECTIVE_CODE["contrastive"]


@dataclass(frozen=True)
class StepContext:
    """What every rank knows of a global batch before its first forward pass."""

    predicted_tokens: int  # of all ranks and micro-batches
    pairs_by_rank: tuple[int, ...]  # all in the first micro-batch
    loss_weights: Mapping[str, float]  # by objective, from the phase
    phase: int  # its index
    rank: int

    @property
    def pairs(self) -> int:
        """Size of the logical group of negatives."""
        return sum(self.pairs_by_rank)


def phase_weights(phase: Phase) -> dict[str, float]:
    """Return the loss weight of each objective of a phase."""
    return {name: objective.loss_weight for name, objective in phase.objectives.items()}


def count_pairs(batch: PackedBatch) -> int:
    """Return the number of contrastive pairs in a micro-batch."""
    return int((batch.sequence_objective == CONTRASTIVE).sum()) // 2


class PretrainingObjective(nn.Module):
    """The model with its losses; ``statistics`` collects them by objective and language."""

    def __init__(self, model: PretrainingModel, temperature: float, statistics: LossStatistics) -> None:
        super().__init__()
        self.model = model
        self.temperature = temperature
        self.statistics = statistics

    def forward(self, batch: PackedBatch, context: StepContext, with_pairs: bool) -> Tensor:
        """Return this micro-batch's part of the step's loss, a scalar in fp32.

        ``with_pairs`` is true for the first micro-batch of a step that has pairs on any rank.
        """
        full = with_ballast(batch)
        hidden = self.model.hidden(full)
        losses = self.model.token_losses(hidden, full.predict_positions, full.labels)
        loss = self._token_part(batch, losses, context)
        own = loss
        if with_pairs:
            pairs_part = self._pairs_part(full, hidden, context)
            loss = loss + pairs_part
            if context.rank == 0:
                own = own + pairs_part.detach()
        self.statistics.add_batch(context.phase, batch)
        self.statistics.add_step_loss(own)
        return loss

    def _token_part(self, batch: PackedBatch, losses: Tensor, context: StepContext) -> Tensor:
        if batch.predict_positions.numel() == 0:
            return losses.sum() * 0.0
        objective = batch.prediction_objective
        weights = losses.new_tensor([context.loss_weights.get(name, 0.0) for name in OBJECTIVES])
        self.statistics.add(objective, batch.language_ids[batch.predict_positions], losses)
        return (weights[objective] * losses).sum() / context.predicted_tokens

    def _pairs_part(self, batch: PackedBatch, hidden: Tensor, context: StepContext) -> Tensor:
        # Contrastive sequences come in twos, a source and then its translation.
        chosen = torch.nonzero(batch.sequence_objective == CONTRASTIVE).squeeze(1)
        source, target = chosen[0::2], chosen[1::2]
        vectors = unit_vectors(mean_pool(hidden, batch.cu_seqlens))
        own = Pairs(vectors[source], vectors[target], batch.pair_key[source], batch.pair_index[source])
        group = gather_pairs(own, context.pairs_by_rank)
        losses = pair_losses(group, self.temperature)
        mine = torch.isin(group.indices, own.indices)
        language = batch.language_ids[batch.cu_seqlens[target].long()][torch.argsort(own.indices)]
        self.statistics.add(torch.full_like(language, CONTRASTIVE), language, losses[mine])
        part = context.loss_weights.get("contrastive", 0.0) * losses.mean()
        # On a rank without pairs the loss is a constant; the token part keeps its graph.
        return part if part.requires_grad else part.detach()


def with_ballast(batch: PackedBatch) -> PackedBatch:
    """Give a micro-batch without tokens one token, and one without predictions one prediction.

    Their loss counts nothing. All micro-batches then run the same modules and give every parameter a
    gradient, in the same order on every rank: ZeRO 1 and 2 fill reduction buckets in order of arrival, so
    ranks with different graphs would add up gradients of different parameters, and ZeRO 3 would hang.
    """
    if batch.tokens == 0:
        one, none = batch.input_ids.new_zeros(1), batch.input_ids.new_full((1,), -1)
        batch = replace(
            batch,
            input_ids=one,
            position_ids=one,
            token_type_ids=one,
            language_ids=one,
            cu_seqlens=batch.cu_seqlens.new_tensor([0, 1]),
            sequence_objective=none,
            pair_key=none,
            pair_index=none,
            sequence_label=none,
            row_id=none,
        )
    if batch.predict_positions.numel() == 0:
        one = batch.input_ids.new_zeros(1)
        batch = replace(batch, predict_positions=one, labels=one, prediction_objective=one)
    return batch
