"""From a recipe's optimizer section to the optimizer that DeepSpeed wraps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from xlm.config.training import OptimizerSection
from xlm.training.optimizers.lamb import Lamb
from xlm.training.optimizers.muon import Muon
from xlm.training.optimizers.zero_layout import zero_layout


def build_optimizer(groups: Sequence[dict[str, Any]], section: OptimizerSection, *, low_precision: bool) -> Optimizer:
    """Return the optimizer of `parameter_groups`; ``low_precision`` lets Muon multiply in bf16, as models of that precision do."""
    if section.kind == "lamb":
        return Lamb(groups, lr=section.learning_rate, betas=section.betas, eps=section.epsilon)
    if section.kind == "muon":
        options = {"eps": section.epsilon, "momentum": section.momentum}
        dtype = torch.bfloat16 if low_precision else torch.float32
        return Muon(groups, lr=section.learning_rate, betas=section.betas, dtype=dtype, **options)
    return torch.optim.AdamW(
        groups,
        lr=section.learning_rate,
        betas=section.betas,
        eps=section.epsilon,
        weight_decay=section.weight_decay,
        fused=True,  # one pass over memory; also built for CPUs, and the same numbers every time
    )


def tell_layout(optimizer: Optimizer, wrapped: Any, stage: int, device: torch.device) -> None:  # noqa: ANN401 (DeepSpeed has no types)
    """Tell an optimizer that looks at whole parameters where DeepSpeed, which ``wrapped`` it, put their pieces."""
    if isinstance(optimizer, Lamb | Muon):
        optimizer.layout = zero_layout(wrapped, stage, device)
