"""Draws by the inverse of a cumulative distribution that comes in chunks."""

from __future__ import annotations

import torch
from torch import Tensor

# Chunks below this probability are left out: their pieces' own probabilities could vanish in fp32.
LEAST_MASS = 1e-30


def draw_chunks(masses: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Return for each row of ``masses`` [p, chunks] the chunk its uniform [p] falls into, and what is left of it inside."""
    cumulative = masses.where(masses > LEAST_MASS, 0.0).to(torch.float64).cumsum(1)
    targets = uniforms.to(torch.float64) * cumulative[:, -1]
    chosen = _first_above(cumulative, targets)
    before = torch.cat([cumulative.new_zeros(len(cumulative), 1), cumulative], 1).gather(1, chosen[:, None]).squeeze(1)
    return chosen, targets - before


def draw_pieces(probabilities: Tensor, targets: Tensor) -> Tensor:
    """Return for each row of [p, c] the first piece up to which it adds up to more than ``targets`` [p]."""
    return _first_above(probabilities.to(torch.float64).cumsum(1), targets)


def _first_above(cumulative: Tensor, targets: Tensor) -> Tensor:
    """Return the first column of [p, n] above the target; where rounding leaves none, the last that adds anything.

    Rows of NaN give a column too: a step that diverged goes on to its gradient, and is skipped for that.
    """
    above = torch.searchsorted(cumulative, targets[:, None], right=True)
    last = torch.searchsorted(cumulative, cumulative[:, -1:].contiguous())
    return torch.minimum(above, last).clamp_(max=cumulative.shape[1] - 1).squeeze(1)
