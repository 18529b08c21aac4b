"""One door to attention: the path is chosen by device, precision and shapes, never by the clock."""

from __future__ import annotations

from torch import Tensor

from xlm.model.attention.packed import attend_packed
from xlm.model.attention.plan import AttentionPlan
from xlm.model.attention.varlen import attend_varlen
from xlm.model.attention.weight_dropout import active_dropout
from xlm.model.dropout import Dropout


def attend(qkv: Tensor, plan: AttentionPlan, *, scale: float | None = None, dropout: Dropout | None = None) -> Tensor:
    """Return softmax(q k^T * scale) v inside each sequence (Vaswani et al. 2017), [T, width].

    ``qkv`` is [T, 3 * width], queries first; ``scale`` defaults to 1 / sqrt(width / heads). ``dropout`` drops attention
    weights where its module is training.
    """
    if scale is None:
        scale = float((qkv.shape[1] // (3 * plan.heads)) ** -0.5)
    dropped = active_dropout(dropout)
    if qkv.device.type == "cuda" and plan.tokens:
        return attend_varlen(qkv, plan, scale, dropped)
    return attend_packed(qkv, plan, scale, dropped)
