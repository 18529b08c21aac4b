"""Where DeepSpeed keeps a parameter's fp32 numbers on this rank: one picture for every ZeRO stage.

Stage 0 leaves parameters whole. Stages 1 and 2 flatten each group of the optimizer, parameter after parameter (reordered by
``round_robin_gradients``), pad it and give every rank an equal run of it. Stage 3 cuts each parameter into equal runs, the last
ones padded, and joins a rank's runs to flat tensors. The optimizer's state is keyed by the flat tensor, and as long as it.
DeepSpeed's own look-up (`deepspeed.utils.tensor_fragment`) takes the order of the group's parameters for that of
the flat tensor, which it is not under ``round_robin_gradients``; so places are those of `zero_layout`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from xlm.training.optimizers.zero_layout import zero_layout

if TYPE_CHECKING:
    from xlm.training.engine import TrainingEngine


@dataclass(frozen=True)
class Piece:
    """The numbers [start, stop) of a flattened parameter, which are ``flat[offset : offset + stop - start]``."""

    name: str
    parameter: nn.Parameter
    shape: tuple[int, ...]  # of the whole parameter
    start: int
    stop: int
    flat: Tensor  # fp32; what the optimizer steps
    offset: int

    @property
    def master(self) -> Tensor:
        """The fp32 numbers of the run, where they stand."""
        return self.of(self.flat)

    def of(self, flat: Tensor) -> Tensor:
        """Return this piece's part of a tensor that is laid out as ``flat``."""
        return flat.detach().view(-1)[self.offset : self.offset + self.stop - self.start]


def pieces(engine: TrainingEngine) -> list[Piece]:
    """Return what this rank holds of each parameter of the model; at stage 0 everything, on every rank."""
    names = {parameter: name for name, parameter in engine.objective.model.named_parameters()}
    if engine.stage == 0:
        return [Piece(name, parameter, tuple(parameter.shape), 0, parameter.numel(), parameter, 0) for parameter, name in names.items()]
    layout = zero_layout(engine.wrapped_optimizer, engine.stage, engine.device)
    return [
        Piece(names[parameter], parameter, run.shape, run.start, run.stop, flat, run.offset)
        for (flat, runs), parameters in zip(layout.pieces.items(), _parameters(engine.wrapped_optimizer, engine.stage), strict=True)
        for run, parameter in zip(runs, parameters, strict=True)
        if run.start < run.stop
    ]


def full_weights(engine: TrainingEngine) -> Iterator[tuple[str, Tensor]]:
    """Yield each parameter of the model in fp32 on the CPU, by name; every rank must go through all of them."""
    held = {piece.name: piece for piece in pieces(engine)}
    for name, parameter in engine.objective.model.named_parameters():
        if engine.stage < 3 and parameter.dtype == torch.float32:
            yield name, parameter.detach().to("cpu", copy=True)
            continue
        shape = tuple(getattr(parameter, "ds_shape", parameter.shape))
        # A sum with -0.0 is the other number, whichever zero that is; all but one rank have it.
        full = torch.full((math.prod(shape),), -0.0, dtype=torch.float32, device=engine.device)
        if name in held:
            full[held[name].start : held[name].stop] = held[name].master
        dist.all_reduce(full)
        yield name, full.to("cpu").view(shape)


def stepped_optimizer(engine: TrainingEngine) -> Any:  # noqa: ANN401 (torch's, or what is built like it)
    """Return the optimizer whose state is keyed by the pieces' flat tensors."""
    return engine.wrapped_optimizer if engine.stage == 0 else engine.wrapped_optimizer.optimizer


def _parameters(optimizer: Any, stage: int) -> Any:  # noqa: ANN401 (DeepSpeed has no types)
    """Return the model's parameters by flat tensor, in the order in which they lie there."""
    if stage == 3:
        return optimizer.fp16_groups
    return optimizer.bf16_groups if hasattr(optimizer, "bf16_groups") else optimizer.round_robin_bit16_groups
