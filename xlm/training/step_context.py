"""What every rank knows of a global batch before its first forward pass: by what the losses are divided.

Promise 3. A mean over the global batch can be summed up from micro-batches only when its denominator is known beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

import torch
from torch import Tensor

from xlm.batching.packed_batch import OBJECTIVE_CODE, OBJECTIVES, PackedBatch
from xlm.config.phases import Objective, ObjectiveShare

CONTRASTIVE = OBJECTIVE_CODE["contrastive"]
RTD = OBJECTIVE_CODE["rtd"]


@dataclass(frozen=True)
class BatchCounts:
    """How much a rank's micro-batches of a step hold; integers that ranks tell each other."""

    predictions: int
    sentence_labels: int  # of NSP and SOP
    rtd_tokens: int  # all tokens of RTD sequences
    pairs: int  # contrastive ones, all in the first micro-batch

    @classmethod
    def of(cls, micro_batches: Sequence[PackedBatch]) -> BatchCounts:
        """Count; raises RuntimeError for contrastive rows outside the first micro-batch."""
        pairs = [count_pairs(batch) for batch in micro_batches]
        if any(pairs[1:]):
            raise RuntimeError("contrastive rows outside the first micro-batch")
        return cls(
            predictions=sum(int(batch.predict_positions.numel()) for batch in micro_batches),
            sentence_labels=sum(int((batch.sequence_label >= 0).sum()) for batch in micro_batches),
            rtd_tokens=sum(int(batch.cu_seqlens.diff()[batch.sequence_objective == RTD].sum()) for batch in micro_batches),
            pairs=pairs[0],
        )

    def numbers(self) -> list[int]:
        """Return the counts in their order."""
        return list(astuple(self))


NOTHING = BatchCounts(0, 0, 0, 0)


@dataclass(frozen=True)
class StepContext:
    """A step as all ranks see it."""

    by_rank: tuple[BatchCounts, ...]
    objectives: Mapping[Objective, ObjectiveShare]  # the phase's
    phase: int  # its index
    rank: int

    @property
    def predictions(self) -> int:
        """Predicted tokens of all ranks and micro-batches; at least 1, as all these, for divisions."""
        return max(1, sum(counts.predictions for counts in self.by_rank))

    @property
    def sentence_labels(self) -> int:
        """Labels of NSP and SOP together."""
        return max(1, sum(counts.sentence_labels for counts in self.by_rank))

    @property
    def rtd_tokens(self) -> int:
        """Tokens that a discriminator judges."""
        return max(1, sum(counts.rtd_tokens for counts in self.by_rank))

    @property
    def pairs_by_rank(self) -> tuple[int, ...]:
        """Contrastive pairs of each rank."""
        return tuple(counts.pairs for counts in self.by_rank)

    @property
    def pairs(self) -> int:
        """Size of the logical group of negatives."""
        return sum(self.pairs_by_rank)

    def loss_weight(self, objective: Objective) -> float:
        """Return what the loss of an objective counts, 0 for one that the phase does not have."""
        return self.objectives[objective].loss_weight if objective in self.objectives else 0.0

    def loss_weights(self, device: torch.device) -> Tensor:
        """Return `loss_weight` by objective code, [objectives] fp32."""
        return torch.tensor([self.loss_weight(name) for name in OBJECTIVES], dtype=torch.float32, device=device)

    def sentence_weights(self, device: torch.device) -> Tensor:
        """Return what a sentence label's loss counts by objective code, [objectives] fp32."""
        of_sentences = [self.objectives[name].sentence_weight if name in self.objectives else 0.0 for name in OBJECTIVES]
        return self.loss_weights(device) * torch.tensor(of_sentences, dtype=torch.float32, device=device)

    @property
    def discriminator_weight(self) -> float:
        """Return what the discriminator's mean loss counts in the step."""
        return self.loss_weight("rtd") * self.objectives["rtd"].discriminator_weight if "rtd" in self.objectives else 0.0


def count_pairs(batch: PackedBatch) -> int:
    """Return the number of contrastive pairs in a micro-batch."""
    return int((batch.sequence_objective == CONTRASTIVE).sum()) // 2
