"""Replaced token detection (ELECTRA, Clark et al. 2020): a generator fills masks in, the encoder says which tokens are not the text's.

The generator's loss is that of masked pieces; its pieces are drawn from its softmax, and no gradient goes through the
draw. A drawn piece that is the text's own counts as original. As in ELECTRA's released code every predicted position is
filled in, the ones whose piece was kept included.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from xlm.batching.packed_batch import PackedBatch
from xlm.config.training import TrainingSection
from xlm.model.generator import Generator
from xlm.model.heads import DiscriminatorHead
from xlm.model.pretraining import PretrainingModel, TokenTables
from xlm.model.vocabulary_loss import vocabulary_loss
from xlm.training.ballast import Targets
from xlm.training.statistics import MEASURE_CODE, LossStatistics
from xlm.training.step_context import RTD, StepContext


@dataclass(frozen=True)
class Replaced:
    """A micro-batch after its generator: that one's part of the loss, the ids with its pieces, and what was replaced."""

    loss: Tensor  # scalar fp32
    input_ids: Tensor  # [T]
    targets: Targets  # all tokens of RTD sequences, label 1: replaced


class ReplacedTokens:
    """Both sides of the game; its modules are the model's."""

    def __init__(
        self, model: PretrainingModel, generator: Generator, head: DiscriminatorHead, training: TrainingSection, statistics: LossStatistics
    ) -> None:
        self._model, self._generator, self._head = model, generator, head
        self._training, self._statistics = training, statistics

    def generate(self, batch: PackedBatch, tables: TokenTables, context: StepContext) -> Replaced:
        """Fill in the predicted positions of RTD sequences; a batch without any has one token that counts nothing."""
        of_rtd = batch.sequence_objective == RTD
        lengths = batch.cu_seqlens.diff()
        judged = torch.repeat_interleave(of_rtd, lengths, output_size=batch.tokens)
        tokens = torch.nonzero(judged).squeeze(1)
        shown, cu_seqlens = self._read(tokens, lengths[of_rtd])
        predictions = torch.nonzero(batch.prediction_objective == RTD).squeeze(1)
        positions, labels = batch.predict_positions[predictions], batch.labels[predictions]
        places = judged.cumsum(0) - 1
        weight = context.loss_weight("rtd") / context.predictions
        asked = Targets(places[positions], labels, torch.full_like(labels, weight, dtype=torch.float32)).or_ballast()
        drawn_by = asked.weights.new_zeros(1, dtype=torch.float64) if asked.ballast else _uniforms(batch)[predictions]
        found = vocabulary_loss(
            self._generator(self._embedded(batch, shown, tables), batch.position_ids[shown], cu_seqlens, asked.tokens),
            tables.projection,
            self._generator.lm_head.bias,
            asked.labels,
            asked.weights,
            label_smoothing=self._training.label_smoothing,
            z_loss=self._training.z_loss,
            uniforms=drawn_by,
            standing=tables.standing,
            factor=self._model.loss_factor,
        )
        input_ids, replaced = batch.input_ids, torch.zeros_like(batch.input_ids)
        if not asked.ballast and found.samples is not None:
            self._statistics.add(torch.full_like(labels, RTD), batch.language_ids[positions], found.losses, found.correct)
            input_ids = input_ids.index_put((positions,), found.samples)
            replaced[positions] = (found.samples != labels).to(replaced.dtype)
        weights = torch.full_like(tokens, context.discriminator_weight / context.rtd_tokens, dtype=torch.float32)
        return Replaced(found.total, input_ids, Targets(tokens, replaced[tokens], weights).or_ballast())

    def judge(self, states: Tensor, targets: Targets, languages: Tensor) -> Tensor:
        """Return the discriminator's part of the loss from states [N, width] and languages [N] of the targets' tokens."""
        scores = self._head(states).float()
        losses = F.binary_cross_entropy_with_logits(scores, targets.labels.float(), reduction="none")
        if not targets.ballast:
            correct = (scores > 0) == (targets.labels == 1)
            replaced = torch.nonzero(targets.labels).squeeze(1)
            self._count("rtd_discriminator", languages, losses, correct)
            self._count("rtd_replaced", languages[replaced], losses[replaced], correct[replaced])
        return (targets.weights * losses).sum()

    def _read(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tokens that the generator reads and the boundaries of their sequences; the first token where there are none."""
        if not tokens.numel():
            return tokens.new_zeros(1), lengths.new_tensor([0, 1])
        return tokens, torch.cat([lengths.new_zeros(1), lengths.cumsum(0, dtype=lengths.dtype)])

    def _embedded(self, batch: PackedBatch, tokens: Tensor, tables: TokenTables) -> Tensor:
        config = self._model.config
        embedded: Tensor = self._model.encoder.embeddings(
            batch.input_ids[tokens],
            batch.position_ids[tokens],
            batch.token_type_ids[tokens] if config.token_types else None,
            batch.language_ids[tokens] if config.language_embeddings else None,
            tables.lookup,
        )
        return embedded

    def _count(self, measure: str, languages: Tensor, losses: Tensor, correct: Tensor) -> None:
        self._statistics.add(torch.full_like(languages, MEASURE_CODE[measure]), languages, losses, correct)


def _uniforms(batch: PackedBatch) -> Tensor:
    if batch.uniforms is None:
        raise RuntimeError("a batch with RTD rows has no uniforms to draw the generator's pieces by")
    return batch.uniforms
