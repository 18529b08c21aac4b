"""Muon: the momentum of hidden matrices made orthogonal, AdamW for the rest (Jordan et al. 2024, kellerjordan.github.io/posts/muon).

Steps are as long as AdamW's (.2 sqrt(longer side), Liu et al. 2025, "Muon is scalable for LLM training"), so that one learning
rate and one decay serve both. A matrix that is several side by side, such as query, key and value, is taken apart by its rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.adamw import adamw

from xlm.training.optimizers.pieces import Layout, Piece

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of Jordan et al.: singular values end between about .7 and 1.2
ITERATIONS = 5


class Muon(Optimizer):
    """Groups with ``blocks`` > 0 hold hidden matrices of so many blocks of rows, the others are AdamW's."""

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        momentum: float,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """``dtype`` is that of the matrix products; with fp32 steps are the same on any number of ranks but for gradients' rounding."""
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "momentum": momentum, "weight_decay": 0.0, "blocks": 0})
        self.dtype = dtype
        self.layout: Layout | None = None  # of tensors that hold pieces of parameters; set by who splits them

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Change the weights by their gradients; where ranks hold pieces, every rank has to come."""
        for group in self.param_groups:
            for tensor in group["params"]:
                if tensor.grad is None:
                    continue
                if group["blocks"]:
                    self._orthogonal_step(tensor, tensor.grad, group)
                else:
                    self._adamw_step(tensor, tensor.grad, group)

    def _orthogonal_step(self, tensor: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[tensor]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(tensor)
        buffer: Tensor = state["momentum_buffer"]
        buffer.lerp_(gradient, 1 - group["momentum"])
        ahead = gradient.lerp(buffer, group["momentum"])  # Nesterov's
        tensor.mul_(1 - group["lr"] * group["weight_decay"])
        layout = self.layout or Layout({}, split=False, device=tensor.device)
        pieces = layout.pieces.get(tensor, (Piece(tuple(tensor.shape), 0, tensor.numel(), 0, shared=False),))
        for piece, whole in layout.wholes(ahead, pieces):
            blocks = whole.chunk(group["blocks"])
            steps = [_step_length(block) * orthogonalised(block, self.dtype) for block in blocks]
            piece.of(tensor).sub_(torch.cat(steps).view(-1)[piece.start : piece.stop], alpha=group["lr"])

    def _adamw_step(self, tensor: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[tensor]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=tensor.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(tensor), torch.zeros_like(tensor)
        beta1, beta2 = group["betas"]
        adamw(
            [tensor],
            [gradient],
            [state["exp_avg"]],
            [state["exp_avg_sq"]],
            [],
            [state["step"]],
            fused=True,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )


def orthogonalised(matrix: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return U S V' for U s V' = ``matrix`` [m, n], S near 1: five quintic Newton-Schulz steps, in fp32 but for its products."""
    a, b, c = COEFFICIENTS
    wide = matrix.shape[0] <= matrix.shape[1]
    x = matrix if wide else matrix.T
    x = (x / x.norm().clamp(min=1e-7)).to(dtype)
    for _ in range(ITERATIONS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x if wide else x.T).to(matrix.dtype)


def _step_length(matrix: Tensor) -> float:
    """Return by what an orthogonal matrix is multiplied to have the root mean square of AdamW's steps, about .2 (Liu et al. 2025)."""
    return 0.2 * math.sqrt(max(matrix.shape))
