"""From a packed micro-batch to its part of the global loss; this module is what DeepSpeed wraps.

Promise 3: the parts of all micro-batches of all ranks sum to the loss of the global batch,

    sum(w x piece loss) / predicted pieces                  mlm, tlm, clm, the masked pieces of nsp and sop, rtd's generator
    + sum(w x sentence weight x label loss) / labels        nsp and sop together
    + w x discriminator weight x mean over rtd's tokens
    + w x mean pair loss,

w an objective's loss weight and every denominator that of the global batch, so the split into ranks and
micro-batches changes nothing. (A mean of means would weigh tokens by their neighbours.) The contrastive value is
the same on every rank; only rank 0 reports it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from xlm.batching.packed_batch import PackedBatch
from xlm.config.training import TrainingSection
from xlm.model.pretraining import PretrainingModel, TokenTables
from xlm.training.ballast import Targets, with_a_token
from xlm.training.encoded import Encoded, encode_for
from xlm.training.pairs_part import PairsPart
from xlm.training.replaced_tokens import Replaced, ReplacedTokens
from xlm.training.sentence_part import SentencePart
from xlm.training.statistics import LossStatistics
from xlm.training.step_context import RTD, StepContext


@dataclass(frozen=True)
class _Read:
    """What the parts of a micro-batch's loss read of its encoded tokens; None: the model has no such head."""

    pieces: Targets | None
    sentences: Targets | None
    replaced: Replaced | None
    pairs: Tensor | None  # tokens; None too: no pairs in this micro-step

    def last_layer(self, pairs_too: bool) -> list[Tensor | None]:
        """Return the lists of tokens whose last states are read."""
        judged = None if self.replaced is None else self.replaced.targets
        of_heads = [None if targets is None else targets.tokens for targets in (self.pieces, self.sentences, judged)]
        return [*of_heads, self.pairs if pairs_too else None]


class PretrainingObjective(nn.Module):
    """The model with its losses; ``statistics`` collects them by objective and language.

    Whatever heads the model has are asked something in every micro-batch (`xlm.training.ballast`).
    """

    def __init__(self, model: PretrainingModel, training: TrainingSection, statistics: LossStatistics) -> None:
        super().__init__()
        self.model = model
        self.statistics = statistics
        self.pairs = PairsPart(training.contrastive, model, statistics)
        self._training = training
        head, generator, discriminator = model.sentence_head, model.generator, model.discriminator_head
        self._sentences = None if head is None else SentencePart(head, statistics)
        both = generator is not None and discriminator is not None
        self._replaced = ReplacedTokens(model, generator, discriminator, training, statistics) if both else None  # type: ignore[arg-type]

    def forward(self, batch: PackedBatch, context: StepContext, with_pairs: bool) -> Tensor:
        """Return this micro-batch's part of the step's loss, a scalar in fp32.

        ``with_pairs`` is true for the first micro-batch of a step that has pairs on any rank.
        """
        full = with_a_token(batch)
        tables = self.model.token_tables()
        read = _Read(
            pieces=None if self.model.lm_head is None else self._pieces(full, context),
            sentences=None if self._sentences is None else self._sentences.targets(full, context),
            replaced=None if self._replaced is None else self._replaced.generate(full, tables, context),
            pairs=self.pairs.tokens(full) if with_pairs else None,
        )
        layer = self.pairs.layer if with_pairs else None  # of the pairs, where they do not read the last
        input_ids = None if read.replaced is None else read.replaced.input_ids
        encoded = encode_for(self.model, full, tables, read.last_layer(layer is None), input_ids=input_ids, layer=layer)
        loss = self._loss_of_heads(full, tables, encoded, read)
        own = loss.detach()
        if read.pairs is not None:
            pairs_part = self.pairs.loss(full, encoded.at(read.pairs, layer), context)
            loss = loss + pairs_part
            if context.rank == 0:
                own = own + pairs_part.detach()
        self.statistics.add_batch(context.phase, batch)
        self.statistics.add_step_loss(own)
        return loss

    def _loss_of_heads(self, batch: PackedBatch, tables: TokenTables, encoded: Encoded, read: _Read) -> Tensor:
        parts = []
        if read.pieces is not None:
            parts.append(self._loss_of_pieces(batch, tables, encoded.at(read.pieces.tokens), read.pieces))
        if read.sentences is not None and self._sentences is not None:
            parts.append(self._sentences.loss(batch, encoded.at(read.sentences.tokens), read.sentences))
        if read.replaced is not None and self._replaced is not None:
            targets = read.replaced.targets
            judged = self._replaced.judge(encoded.at(targets.tokens), targets, batch.language_ids[targets.tokens])
            parts += [read.replaced.loss, judged]
        return torch.stack(parts).sum() if parts else encoded.states.sum() * 0.0

    def _pieces(self, batch: PackedBatch, context: StepContext) -> Targets:
        """Return what the language-model head predicts: everything but RTD's pieces, which are its generator's."""
        tokens, labels, objective = batch.predict_positions, batch.labels, batch.prediction_objective
        if self._replaced is not None:
            own = objective != RTD
            tokens, labels, objective = tokens[own], labels[own], objective[own]
        weights = context.loss_weights(labels.device)[objective] / context.predictions
        return Targets(tokens, labels, weights, objective).or_ballast()

    def _loss_of_pieces(self, batch: PackedBatch, tables: TokenTables, states: Tensor, targets: Targets) -> Tensor:
        options = {"label_smoothing": self._training.label_smoothing, "z_loss": self._training.z_loss}
        found = self.model.vocabulary_loss(states, targets.labels, targets.weights, tables, **options)
        if targets.measures is not None:
            self.statistics.add(targets.measures, batch.language_ids[targets.tokens], found.losses, found.correct)
        return found.total
