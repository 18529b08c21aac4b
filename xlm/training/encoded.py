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
    inner: Tensor | None = None  # states [T, width] of an inner layer that somebody reads

    def at(self, tokens: Tensor, layer: int | None = None) -> Tensor:
        """Return the states of tokens that were asked for, [n] to [n, width]; ``layer``: those of the inner layer."""
        if layer is not None and self.inner is not None:
            return self.inner.index_select(0, tokens)
        return self.states if self.places is None else self.states.index_select(0, self.places[tokens])


def encode_for(
    model: PretrainingModel,
    batch: PackedBatch,
    tables: TokenTables,
    readers: Sequence[Tensor | None],
    input_ids: Tensor | None = None,
    layer: int | None = None,
) -> Encoded:
    """Encode a micro-batch for ``readers``, each the tokens [n] that one part of the loss reads (None: that part does not read).

    They read the last layer; of ``layer`` all states are there as well.
    """
    asked = [tokens for tokens in readers if tokens is not None]
    if len(asked) == 1:
        states, inner = _encode(model, batch, tables, asked[0], input_ids, layer)
        return Encoded(states, None, inner)
    read = torch.zeros(batch.tokens, dtype=torch.bool, device=batch.input_ids.device)
    for tokens in asked:
        read[tokens] = True
    needed = torch.nonzero(read).squeeze(1)
    everything = needed.numel() == batch.tokens
    states, inner = _encode(model, batch, tables, None if everything else needed, input_ids, layer)
    return Encoded(states, read.cumsum(0) - 1, inner)


def _encode(
    model: PretrainingModel, batch: PackedBatch, tables: TokenTables, needed: Tensor | None, input_ids: Tensor | None, layer: int | None
) -> tuple[Tensor, Tensor | None]:
    """Return the last layer's states of ``needed`` tokens, and all states of an inner layer."""
    if layer is None:
        return model.encode(batch, tables, needed=needed, input_ids=input_ids), None
    layers = model.encode_layers(batch, tables, needed=needed, input_ids=input_ids)
    return layers[-1], layers[layer]
