"""Self-attention over packed sequences: nobody pads, nobody sees a neighbour."""

from xlm.model.attention.dispatch import attend
from xlm.model.attention.plan import AttentionPlan, plan_attention
from xlm.model.attention.reference import reference_attention

__all__ = ["AttentionPlan", "attend", "plan_attention", "reference_attention"]
