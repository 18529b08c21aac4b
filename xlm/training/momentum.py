"""A slow copy of the encoder that makes the keys of the contrastive loss (MoCo, He et al. 2020; InfoXLM, Chi et al. 2021).

Its weights are an exponential mean of the encoder's, in fp32 whatever is trained in: in 16 bits a thousandth of a
weight is lost in rounding. It is no part of the trained module, gets no gradient, and drops nothing out. Every rank
holds all of it and makes the same steps.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.func import functional_call

from xlm.batching.packed_batch import PackedBatch
from xlm.errors import UserError
from xlm.model.encoder import Encoder
from xlm.model.pretraining import encoder_inputs


class MomentumEncoder:
    """The mean of an encoder's weights so far, encoding no further than ``layer`` (None: to the end)."""

    def __init__(self, encoder: Encoder, momentum: float, layer: int | None = None) -> None:
        self._momentum = momentum
        self._slow = copy.deepcopy(encoder).float().eval().requires_grad_(False)
        self._layer = None if layer == encoder.config.layers else layer
        if self._layer and encoder.config.layer_groups is None:
            # Layers that nobody reads are neither kept nor run; states of inner layers come before the final norm.
            self._slow.blocks = self._slow.blocks[: self._layer]
            self._slow.config = encoder.config.model_copy(update={"layers": self._layer})
            self._slow.final_norm = None
            self._layer = None

    @torch.no_grad()
    def follow(self, encoder: Encoder) -> None:
        """Go the step's share of the way to an encoder's present weights, which are whole on every rank: never at ZeRO stage 3."""
        present = dict(encoder.named_parameters())
        for name, slow in self._slow.named_parameters():
            slow.lerp_(present[name].to(slow.dtype), 1.0 - self._momentum)

    @torch.no_grad()
    def encode(self, batch: PackedBatch, needed: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the states [N, width] of ``needed`` tokens [N], computed in ``dtype``."""
        weights = {name: tensor.to(dtype) for name, tensor in self._slow.named_parameters()}
        weights |= {name: tensor.to(dtype) for name, tensor in self._slow.named_buffers()}
        inputs = encoder_inputs(self._slow.config, batch)
        if self._layer is None:
            states: Tensor = functional_call(self._slow, weights, kwargs={**inputs, "needed": needed})
            return states
        layers = functional_call(self._slow, weights, kwargs={**inputs, "return_layers": True})
        inner: Tensor = layers[self._layer].index_select(0, needed)
        return inner

    def to(self, device: torch.device) -> None:
        """Move the weights to a device, if they are elsewhere."""
        self._slow.to(device)

    def state(self) -> dict[str, Tensor]:
        """Return the weights, by name."""
        return dict(self._slow.named_parameters())

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take up saved weights; raises UserError for those of another encoder."""
        own = self.state()
        shapes, found = ({name: tuple(tensor.shape) for name, tensor in one.items()} for one in (own, state))
        if shapes != found:
            differing = sorted(name for name in shapes.keys() | found.keys() if shapes.get(name) != found.get(name))
            raise UserError(f"the checkpoint's momentum encoder is of another model ('{differing[0]}'); go on with the recipe of the run.")
        for name, tensor in own.items():
            tensor.copy_(state[name])
