"""Torch's fused attention on groups of similar length, for devices without a kernel of their own here."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from xlm.model.attention.groups import Group, build_group, length_groups
from xlm.model.attention.plan import AttentionPlan


def attend_padded(qkv: Tensor, plan: AttentionPlan, scale: float) -> Tensor:
    """Attend in groups of any length, [T, 3 * width] to [T, width]; the graph is autograd's."""
    heads, head_width = plan.heads, qkv.shape[1] // (3 * plan.heads)
    rows = qkv.reshape(-1, head_width)
    output = rows.new_empty(plan.tokens * heads + 1, head_width)
    for group in plan.once("padded", lambda: padded_groups(plan)):
        query, key, value = rows.index_select(0, group.read).view(3, group.count, heads, group.length, head_width).unbind(0)
        mask = None if group.hidden is None else ~group.hidden
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
        output = torch.index_copy(output, 0, group.write_output, mixed.reshape(-1, head_width))
    return output[:-1].view(plan.tokens, heads * head_width)


def padded_groups(plan: AttentionPlan) -> list[Group]:
    """Group all sequences by length alone: the fused kernels bound their own scores."""
    lengths = np.diff(plan.bounds)
    members = length_groups(lengths, np.flatnonzero(lengths > 0), plan.heads, most_scores=None)
    return [build_group(plan.bounds, own, plan.heads, plan.causal, plan.reach, plan.cu_seqlens.device) for own in members]
