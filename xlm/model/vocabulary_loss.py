"""Cross-entropy over the vocabulary without a [predictions, vocabulary] tensor beside the table's gradient.

Between the two visits to the vocabulary, exponentials lie in the memory that the gradient needs anyway (`vocabulary_memory`); where a
gradient stands already, those of half of the predictions at most lie beside it, in half of its size at most.

The weight of every prediction is known beforehand, so the gradients are taken with the loss, once, for the
loss as it will be used (`vocabulary_visits` says how); the backward pass scales them where that turns out otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from xlm.model.vocabulary_memory import worth_standing
from xlm.model.vocabulary_visits import Gradients, Needs, Objective, visit_vocabulary


@dataclass(frozen=True)
class VocabularyLoss:
    """The loss of P predictions, and what is known about each afterwards; float64 throughout for float64 input."""

    total: Tensor  # scalar fp32 with gradient
    losses: Tensor  # [P] fp32, detached: cross-entropy in nats, without smoothing and z-loss
    correct: Tensor  # [P] bool, detached: the label is the first of the largest logits
    samples: Tensor | None  # [P] int64: pieces drawn from the softmax


def vocabulary_loss(
    hidden: Tensor,
    table: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    weights: Tensor,
    *,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    uniforms: Tensor | None = None,
    standing: Tensor | None = None,
    factor: float = 1.0,
) -> VocabularyLoss:
    """Sum weights * (cross-entropy + z_loss * log(Z)^2) of softmax(hidden table^T + bias) against ``labels``.

    Takes [P, d], [V, d], [V], [P] and [P]; no gradient reaches ``weights``. Smoothing gives each piece
    label_smoothing / V of the target (Szegedy et al. 2016, as torch has it); the z-loss is PaLM's (Chowdhery et al. 2022).
    ``uniforms`` [P] in [0, 1) draws one piece a prediction by the inverse of the cumulative distribution.
    ``factor`` is what the loss will be multiplied by on its way to backward, a loss scale for example: gradients are taken of
    the product, since small ones would be gone from 16 bits before they are multiplied; another factor than said costs a pass.
    With ``standing`` [V, d] in fp32, the gradient of earlier batches, the table's is added to that at once and
    none comes back, which spares a second [V, d]. It is for who goes backward once with that factor; else RuntimeError.
    Labels outside the vocabulary are not looked for.
    """
    device = hidden.device.type
    compute = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    objective = Objective(labels, weights.detach(), label_smoothing, z_loss, uniforms, compute, factor)
    # Inside of a function autograd says what would need a gradient, whether or not anybody is recording.
    of_hidden, of_table, of_bias = (
        torch.is_grad_enabled() and tensor is not None and tensor.requires_grad for tensor in (hidden, table, bias)
    )
    needs = Needs(of_hidden, of_table, of_bias, standing if of_table and worth_standing(table.shape[1]) else None)
    total, losses, correct, samples = _VocabularyLoss.apply(hidden, table, bias, objective, needs)  # type: ignore[no-untyped-call]
    return VocabularyLoss(total, losses, correct, samples)


class _VocabularyLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        hidden: Tensor,
        table: Tensor,
        bias: Tensor | None,
        objective: Objective,
        needs: Needs,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        visited = visit_vocabulary(hidden, table, bias, objective, needs)
        # Not all that was visited: it holds the total, which holds this graph.
        ctx.objective, ctx.needs, ctx.gradients = objective, needs, visited.gradients
        ctx.save_for_backward(hidden, table, bias)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(t for t in (visited.losses, visited.correct, visited.samples) if t is not None))
        return visited.total, visited.losses, visited.correct, visited.samples

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor | None, *_: Tensor | None) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:  # noqa: ANN401
        if gradient is None:
            return None, None, None, None, None
        gradients: Gradients | None = ctx.gradients
        factor = ctx.objective.factor
        if ctx.needs.standing is not None and (gradients is None or float(gradient) != factor):
            raise RuntimeError(f"the table's gradient was added to the standing one for a single backward pass with a factor of {factor:g}")
        if gradients is None:  # A graph that was kept: what the first pass returned belongs to whoever received it.
            hidden, table, bias = ctx.saved_tensors
            gradients = visit_vocabulary(hidden, table, bias, ctx.objective, ctx.needs).gradients
        ctx.gradients = None
        # Looking at the factor would have a GPU wait; a CPU would read and write the whole table for nothing.
        if gradient.device.type != "cpu" or float(gradient) != factor:
            for tensor in gradients:
                if tensor is not None:
                    tensor.mul_(gradient / factor)
        return *gradients, None, None
