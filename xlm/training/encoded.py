"""States of the tokens that somebody reads, and of no others: the last layer does without the rest after its attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from xlm.batching.packed_batch import PackedBatch
from xlm.model.pretraining import PretrainingModel, TokenTables


@dataclass(frozen=True)
class Encoded:
    """States [N, width] of N tokens of a micro-batch; ``places`` [T] says where each of them is, None: one list of tokens reads all."""

    states: Tensor
    places: Tensor | None

    def at(self, tokens: Tensor) -> Tensor:
        """Return the states of tokens that were asked for, [n] to [n, width]."""
        return self.states if self.places is None else self.states.index_select(0, self.places[tokens])


def encode_for(
    model: PretrainingModel,
    batch: PackedBatch,
    tables: TokenTables,
    readers: Sequence[Tensor | None],
    input_ids: Tensor | None = None,
) -> Encoded:
    """Encode a micro-batch for ``readers``, each the tokens [n] that one part of the loss reads (None: that part does not read)."""
    asked = [tokens for tokens in readers if tokens is not None]
    if len(asked) == 1:
        return Encoded(model.encode(batch, tables, needed=asked[0], input_ids=input_ids), None)
    read = torch.zeros(batch.tokens, dtype=torch.bool, device=batch.input_ids.device)
    for tokens in asked:
        read[tokens] = True
    needed = torch.nonzero(read).squeeze(1)
    everything = needed.numel() == batch.tokens
    states = model.encode(batch, tables, needed=None if everything else needed, input_ids=input_ids)
    return Encoded(states, read.cumsum(0) - 1)
