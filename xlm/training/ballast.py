"""What stands in where a micro-batch has nothing to compute, so that all of them run the same modules.

ZeRO 1 and 2 fill reduction buckets in order of arrival, so ranks with different graphs would add up gradients of
different parameters, and ZeRO 3 would hang. So every micro-batch asks every head something, and gives every parameter
a gradient, in the same order on every rank; what only stands in counts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from xlm.batching.packed_batch import PackedBatch


@dataclass(frozen=True)
class Targets:
    """What a head is asked about tokens of a micro-batch, and what each answer counts in the step's loss."""

    tokens: Tensor  # [N] int64, ascending
    labels: Tensor  # [N] int64
    weights: Tensor  # [N] fp32
    measures: Tensor | None = None  # [N] codes under which the losses are counted, where the head's do not say
    ballast: bool = False  # nobody asked: one token, of weight 0

    def or_ballast(self) -> Targets:
        """Return these, or one question about the first token that counts nothing."""
        if self.tokens.numel():
            return self
        one = self.tokens.new_zeros(1)
        return Targets(one, one, self.weights.new_zeros(1), ballast=True)


def with_a_token(batch: PackedBatch) -> PackedBatch:
    """Give a micro-batch without tokens one, in a sequence of no objective."""
    if batch.tokens:
        return batch
    one, none = batch.input_ids.new_zeros(1), batch.input_ids.new_full((1,), -1)
    return replace(
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
