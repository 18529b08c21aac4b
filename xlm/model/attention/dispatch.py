"""One door to attention: the path is chosen by device, precision and shapes."""

from __future__ import annotations

from torch import Tensor

from xlm.model.attention.grouped import GroupedAttention, attend_fused
from xlm.model.attention.plan import AttentionPlan
from xlm.model.dropout import Dropout


def attend(qkv: Tensor, plan: AttentionPlan, *, scale: float | None = None, dropout: Dropout | None = None) -> Tensor:
    """Return softmax(q k^T * scale) v inside each sequence (Vaswani et al. 2017), [T, width].

    ``qkv`` is [T, 3 * width], queries first; ``scale`` defaults to 1 / sqrt(width / heads). ``dropout`` drops attention
    weights where its module is training.
    """
    if scale is None:
        scale = (qkv.shape[1] // (3 * plan.heads)) ** -0.5
    keep = None
    if dropout is not None and dropout.training and dropout.rate > 0.0:
        shapes = [(block.count * plan.heads, block.length, block.length) for block in plan.blocks]
        keep = tuple(dropout.mask(shape, qkv) for shape in shapes)
    if keep is None and qkv.device.type != "cpu":
        return attend_fused(qkv, plan, scale)
    output: Tensor = GroupedAttention.apply(qkv, plan, scale, keep)  # type: ignore[no-untyped-call]
    return output
