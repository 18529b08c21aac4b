"""LAMB: AdamW's step, as long for each tensor as its weights are (You et al. 2020, "Large Batch Optimization for Deep Learning")."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from xlm.training.optimizers.pieces import Layout, Piece


class Lamb(Optimizer):
    """Algorithm 2 of the paper with the identity for phi; the same numbers as timm's `Lamb` (1.0, to 1e-7).

    m, v: moments with bias correction; u = m / (sqrt(v) + eps) + decay w, the decay decoupled from the moments; per tensor
    w -= lr |w| / |u| u, with ratio 1 where a norm is 0. Groups with ``adapted`` false (norms, biases, small tables: what the
    authors' code leaves out of decay, it leaves out of this too) have ratio 1. The authors' code of BERT drops the bias
    correction, which only lengthens the warm-up. The ratio is not clipped (DeepSpeed's FusedLamb: to [.01, 10]). A fused
    query-key-value matrix is one tensor.
    """

    def __init__(self, groups: Iterable[dict[str, Any]], *, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0, "adapted": True})
        self.layout: Layout | None = None  # of tensors that hold pieces of parameters; set by who splits them

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Change the weights by their gradients; where ranks hold pieces, every rank has to come."""
        for group in self.param_groups:
            for tensor in group["params"]:
                if tensor.grad is not None:
                    self._step(tensor, tensor.grad, group)

    def _step(self, tensor: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        update = self._adam_direction(tensor, gradient, group)
        if group["weight_decay"]:
            update.add_(tensor, alpha=group["weight_decay"])
        pieces = self._pieces(tensor)
        if not group["adapted"]:
            tensor.add_(update, alpha=-group["lr"])
            return
        for piece, ratio in zip(pieces, self._trust_ratios(tensor, update, pieces), strict=True):
            piece.of(tensor).add_(piece.of(update), alpha=-group["lr"] * ratio)

    def _adam_direction(self, tensor: Tensor, gradient: Tensor, group: dict[str, Any]) -> Tensor:
        state = self.state[tensor]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(tensor), torch.zeros_like(tensor)
        state["step"] += 1
        first, second = group["betas"]
        state["exp_avg"].lerp_(gradient, 1 - first)
        state["exp_avg_sq"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        steps = int(state["step"])
        denominator = (state["exp_avg_sq"].sqrt() / math.sqrt(1 - second**steps)).add_(group["eps"])
        direction: Tensor = state["exp_avg"].div(denominator).div_(1 - first**steps)
        return direction

    def _pieces(self, tensor: Tensor) -> tuple[Piece, ...]:
        if self.layout is not None:
            return self.layout.of(tensor)
        return (Piece(tuple(tensor.shape), 0, tensor.numel(), 0, shared=False),)

    def _trust_ratios(self, tensor: Tensor, update: Tensor, pieces: Sequence[Piece]) -> list[float]:
        layout = self.layout or Layout({}, split=False, device=tensor.device)
        of_weights, of_updates = layout.squared_norms((tensor, update), pieces).tolist()
        pairs = zip(of_weights, of_updates, strict=True)
        return [math.sqrt(weights / updates) if weights > 0 and updates > 0 else 1.0 for weights, updates in pairs]
