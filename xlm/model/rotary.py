"""Rotary positions (Su et al. 2021): queries and keys turned by an angle that grows with the position."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rotation:
    """Cosines and sines of the angles position / base^(2i / head width), fp32 [T, 1, head width / 2]."""

    cosines: Tensor
    sines: Tensor


def rotation(position_ids: Tensor, head_width: int, base: float) -> Rotation:
    """Return the angles of [T] positions; number i of a head turns together with number i + head width / 2 (GPT-NeoX's order)."""
    exponents = torch.arange(0, head_width, 2, dtype=torch.float32, device=position_ids.device) / head_width
    # Their reciprocals first, as everybody rounds them: far positions turn by hundreds of radians, and a last bit shows.
    angles = position_ids.float()[:, None] * (1.0 / base**exponents)[None, :]
    return Rotation(angles.cos()[:, None, :], angles.sin()[:, None, :])


def rotate(qkv: Tensor, turned: Rotation, heads: int) -> Tensor:
    """Turn the queries and keys of [T, 3 * width]; values stay."""
    parts = qkv.view(qkv.shape[0], 3 * heads, -1)
    first, second = parts[:, : 2 * heads].float().chunk(2, dim=-1)
    cosines, sines = turned.cosines, turned.sines
    rotated = torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)
    return torch.cat([rotated.to(qkv.dtype), parts[:, 2 * heads :]], dim=1).view_as(qkv)
