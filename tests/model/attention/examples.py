"""Packed projections of random sequences, and each way through attention made to serve short ones, too."""

import torch

from xlm.model.attention import plan as plans
from xlm.model.attention import tiles

HUGE = 1 << 40
# (fused from, tiled from, windows in the fused kernel): which sequences go which way.
WAYS = {"chosen": None, "groups": (HUGE, HUGE, 0), "tiles": (HUGE, 1, 0), "fused": (1, 1, 0), "fused windows": (1, 1, HUGE)}


def force(way, patch):
    """Send every sequence ``way``; tiles get as few as 4 queries, so that short sequences have many, and some heads each."""
    if WAYS[way] is not None:
        fused, tiled, windows = WAYS[way]
        for name, value in {"FUSED_LENGTH": fused, "FUSED_QUERIES": fused, "FUSED_WINDOWS": windows}.items():
            patch.setattr(plans, name, value)
        patch.setattr(plans, "TILED_LENGTH", tiled)
        patch.setattr(plans, "TILED_SCORES_16_BITS", tiled)
        patch.setattr(plans, "TILED_WINDOW_SCORES_16_BITS", tiled)
        patch.setattr(tiles, "FEWEST_QUERIES", 4)
        patch.setattr(tiles, "MOST_QUERIES", 8)
        patch.setattr(tiles, "TILE_SCORES", 64)


def boundaries(lengths):
    return torch.tensor([0, *lengths], dtype=torch.int64).cumsum(0).to(torch.int32)


def random_qkv(lengths, width, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(sum(lengths), 3 * width, generator=generator).to(dtype).requires_grad_()


def outputs_and_gradients(function, qkv):
    generator = torch.Generator().manual_seed(1)
    output = function(qkv)
    direction = torch.randn(output.shape, generator=generator).to(output.dtype)
    (gradient,) = torch.autograd.grad(output, qkv, direction)
    return output.detach(), gradient


def as_mask(causal):
    return torch.tensor(causal, dtype=torch.bool)
