"""NSP (Devlin et al. 2019) and SOP (Lan et al. 2020): two classes for a sequence of two spans, from its first token."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from xlm.batching.packed_batch import OBJECTIVES, PackedBatch
from xlm.model.heads import SentenceHead
from xlm.training.ballast import Targets
from xlm.training.statistics import MEASURE_CODE, LossStatistics
from xlm.training.step_context import StepContext

# The measure of a sequence's objective, by code; only those of labelled sequences are read.
_MEASURES = tuple(MEASURE_CODE.get(f"{objective}_sentence", 0) for objective in OBJECTIVES)


class SentencePart:
    """The labelled sequences of a micro-batch; the head is the model's."""

    def __init__(self, head: SentenceHead, statistics: LossStatistics) -> None:
        self._head, self._statistics = head, statistics

    def targets(self, batch: PackedBatch, context: StepContext) -> Targets:
        """Return the first tokens of labelled sequences, or one that counts nothing."""
        labelled = torch.nonzero(batch.sequence_label >= 0).squeeze(1)
        weights = context.sentence_weights(batch.input_ids.device)[batch.sequence_objective[labelled]] / context.sentence_labels
        return Targets(batch.cu_seqlens[labelled].long(), batch.sequence_label[labelled], weights).or_ballast()

    def loss(self, batch: PackedBatch, states: Tensor, targets: Targets) -> Tensor:
        """Return this part of the loss from the states [N, width] of the targets' tokens."""
        logits = self._head(states).float()
        losses = F.cross_entropy(logits, targets.labels, reduction="none")
        if not targets.ballast:
            objective = batch.sequence_objective[batch.sequence_label >= 0]
            measures = torch.tensor(_MEASURES, device=objective.device)[objective]
            self._statistics.add(measures, batch.language_ids[targets.tokens], losses, logits.argmax(1) == targets.labels)
        return (targets.weights * losses).sum()
