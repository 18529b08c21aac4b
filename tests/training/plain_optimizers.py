"""LAMB and Muon as their papers write them, parameter by parameter, for whole parameters in one process."""

import torch


def lamb_step(weight, gradient, state, *, rate, betas, epsilon, decay, adapted):
    """Algorithm 2 of You et al. 2020, phi the identity."""
    t = state["t"] = state.get("t", 0) + 1
    m = state["m"] = betas[0] * state.get("m", 0) + (1 - betas[0]) * gradient
    v = state["v"] = betas[1] * state.get("v", 0) + (1 - betas[1]) * gradient**2
    update = (m / (1 - betas[0] ** t)) / ((v / (1 - betas[1] ** t)) ** 0.5 + epsilon) + decay * weight
    ratio = 1.0
    if adapted and weight.norm() > 0 and update.norm() > 0:
        ratio = weight.norm() / update.norm()
    weight -= rate * ratio * update


def muon_step(weight, gradient, state, *, rate, momentum, decay, blocks):
    """Jordan et al. 2024 with the step length of Liu et al. 2025; Newton-Schulz as the quintic polynomial of X."""
    buffer = state["m"] = momentum * state.get("m", torch.zeros_like(gradient)) + (1 - momentum) * gradient
    update = momentum * buffer + (1 - momentum) * gradient
    weight *= 1 - rate * decay
    for target, x in zip(weight.chunk(blocks), update.chunk(blocks), strict=True):
        x = x / x.norm()
        for _ in range(5):
            x = 3.4445 * x - 4.7750 * (x @ x.T) @ x + 2.0315 * (x @ x.T) @ ((x @ x.T) @ x)
        target -= rate * 0.2 * max(x.shape) ** 0.5 * x
