"""From a packed micro-batch to its part of the global loss; this module is what DeepSpeed wraps.

Promise 3: the parts of all micro-batches of all ranks sum to the loss of the global batch,

    sum(loss weight x token loss) / predicted tokens of the global batch + weight x mean pair loss,

so the split into ranks and micro-batches changes nothing. (A mean of means would weigh tokens by their
neighbours.) The contrastive value is the same on every rank; only rank 0 reports it.
"""

from __future__ import annotations

from torch import Tensor, nn

from xlm.batching.packed_batch import PackedBatch
from xlm.config.recipe import TrainingSection
from xlm.model.pretraining import PretrainingModel
from xlm.training.ballast import Targets, with_a_token
from xlm.training.encoded import encode_for
from xlm.training.pairs_part import PairsPart
from xlm.training.statistics import LossStatistics
from xlm.training.step_context import StepContext


class PretrainingObjective(nn.Module):
    """The model with its losses; ``statistics`` collects them by objective and language."""

    def __init__(self, model: PretrainingModel, training: TrainingSection, statistics: LossStatistics) -> None:
        super().__init__()
        self.model = model
        self.statistics = statistics
        self.pairs = PairsPart(training.contrastive, model, statistics)

    def forward(self, batch: PackedBatch, context: StepContext, with_pairs: bool) -> Tensor:
        """Return this micro-batch's part of the step's loss, a scalar in fp32.

        ``with_pairs`` is true for the first micro-batch of a step that has pairs on any rank.
        """
        full = with_a_token(batch)
        tables = self.model.token_tables()
        predicted = self._predicted(batch, context).or_ballast()
        pair_tokens = self.pairs.tokens(full) if with_pairs else None
        layer = self.pairs.layer if with_pairs else None  # of the pairs, where they do not read the last
        encoded = encode_for(self.model, full, tables, [predicted.tokens, pair_tokens if layer is None else None], layer=layer)
        found = self.model.vocabulary_loss(encoded.at(predicted.tokens), predicted.labels, predicted.weights, tables)
        if not predicted.ballast:
            self.statistics.add(batch.prediction_objective, batch.language_ids[predicted.tokens], found.losses)
        loss = found.total
        own = loss.detach()
        if pair_tokens is not None:
            pairs_part = self.pairs.loss(full, encoded.at(pair_tokens, layer), context)
            loss = loss + pairs_part
            if context.rank == 0:
                own = own + pairs_part.detach()
        self.statistics.add_batch(context.phase, batch)
        self.statistics.add_step_loss(own)
        return loss

    def _predicted(self, batch: PackedBatch, context: StepContext) -> Targets:
        weights = context.loss_weights(batch.labels.device)[batch.prediction_objective] / context.predictions
        return Targets(batch.predict_positions, batch.labels, weights)
