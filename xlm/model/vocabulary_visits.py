"""The loss of all predictions and its gradients, in two visits to the vocabulary and one projection.

Both visits go through the vocabulary in chunks. The first makes a chunk's logits and from them, with a running
maximum (Milakov & Gimelshein 2018), the normaliser and the gradient of the hidden states. The second knows the
normaliser and turns the exponentials that the first has left behind into the gradients of table and bias.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from xlm.model.vocabulary_block import Block, Targets, Vocabulary
from xlm.model.vocabulary_memory import (
    cut_predictions,
    cut_vocabulary,
    exponentials,
    predictions_beside,
    predictions_without_lender,
)


@dataclass(frozen=True)
class Objective:
    """What is asked of P predictions."""

    labels: Tensor  # [P] int64
    weights: Tensor  # [P]
    label_smoothing: float
    z_loss: float
    uniforms: Tensor | None  # [P] in [0, 1)
    compute: torch.dtype  # of the matrix products
    factor: float  # gradients are of this times the loss


@dataclass(frozen=True)
class Needs:
    """Whose gradient is needed."""

    hidden: bool
    table: bool
    bias: bool
    standing: Tensor | None = None  # [V, d]: the table's gradient so far, which this one is added to at once


Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]  # of hidden [P, d], table [V, d] and bias [V]


@dataclass(frozen=True)
class Visited:
    """The loss, and the gradients of the objective's factor times the loss."""

    total: Tensor  # scalar
    losses: Tensor  # [P]
    correct: Tensor  # [P] bool
    samples: Tensor | None  # [P] int64
    gradients: Gradients


def visit_vocabulary(hidden: Tensor, table: Tensor, bias: Tensor | None, objective: Objective, needs: Needs) -> Visited:
    """Return what `xlm.model.vocabulary_loss` describes, with the gradients that are needed."""
    with torch.no_grad(), torch.autocast(hidden.device.type, enabled=False):
        visits = _Visits(hidden, table, bias, objective, needs)
        return visits.visit()


class _Visits:
    """All predictions in the order of their labels, and their gradients as they grow."""

    def __init__(self, hidden: Tensor, table: Tensor, bias: Tensor | None, objective: Objective, needs: Needs) -> None:
        self.exact = exact = torch.promote_types(torch.float32, hidden.dtype)
        self.table, self.bias, self.objective, self.needs = table, bias, objective, needs
        self.labels, self.order = torch.sort(objective.labels, stable=True)
        self.hidden_type = hidden.dtype
        self.hidden = hidden.to(objective.compute).index_select(0, self.order)
        self.weights = objective.weights.to(exact).index_select(0, self.order)
        self.uniforms = None if objective.uniforms is None else objective.uniforms.index_select(0, self.order)
        self.keeps = needs.table or needs.bias or self.uniforms is not None

        sums = self._plan()
        allocate = table.new_empty if self.blocks else table.new_zeros
        self.d_table = allocate(table.shape, dtype=sums) if needs.table and needs.standing is None else needs.standing
        self.d_bias = table.new_zeros(len(table), dtype=exact) if needs.bias else None
        self.d_hidden = hidden.new_empty(hidden.shape, dtype=exact) if needs.hidden else None

    def _plan(self) -> torch.dtype:
        """Cut the predictions into blocks; return the type of the table's gradient while it grows.

        A single block rounds its sums as it writes them, others add theirs up exactly and are rounded once.
        """
        width, predictions, beside = self.table.shape[1], len(self.labels), predictions_beside(len(self.table))
        if not self.keeps:
            self.blocks = cut_predictions(predictions, predictions, beside)
            return self.exact
        if self.needs.standing is not None:  # It holds a sum that must not be written over, so it lends nothing.
            self.blocks = cut_predictions(predictions, 0, max(beside, predictions_without_lender(width, predictions)))
            return self.exact
        lent, rest = divmod(width * self.table.element_size(), self.exact.itemsize)
        single = rest == 0 and predictions <= lent + beside
        room = (lent if single else width) if self.needs.table else 0
        self.blocks = cut_predictions(predictions, room + beside, beside)
        return self.table.dtype if single else self.exact

    def visit(self) -> Visited:
        """Visit the vocabulary with each block, and bring everything back into the order and the types of the input."""
        total = self.weights.new_zeros(())
        losses = torch.empty_like(self.weights)
        correct = torch.empty_like(self.labels, dtype=torch.bool)
        samples = None if self.uniforms is None else torch.empty_like(self.labels)
        for rows in self.blocks:
            block = self._block(rows)
            block.first_visit(None if self.d_hidden is None else self.d_hidden[rows])
            total += block.total
            losses[rows], correct[rows] = block.losses, block.correct
            if samples is not None and self.uniforms is not None:
                samples[rows] = block.draw(self.uniforms[rows])
            if self.needs.table or self.needs.bias:
                block.second_visit(self.d_table, self.d_bias, add=self.needs.standing is not None or rows.start > 0)
            del block  # Its exponentials, before there are others.
        places = torch.argsort(self.order)
        return Visited(
            total=total,
            losses=losses.index_select(0, places),
            correct=correct.index_select(0, places),
            samples=None if samples is None else samples.index_select(0, places),
            gradients=(
                None if self.d_hidden is None else self.d_hidden.index_select(0, places).to(self.hidden_type),
                None if self.d_table is None or self.needs.standing is not None else self.d_table.to(self.table.dtype),
                None if self.d_bias is None or self.bias is None else self.d_bias.to(self.bias.dtype),
            ),
        )

    def _block(self, rows: slice) -> Block:
        predictions = rows.stop - rows.start
        chunks = cut_vocabulary(len(self.table), predictions, self.table.device)
        lender = self.d_table if rows.start == 0 and self.needs.standing is None else None
        return Block(
            self.hidden[rows],
            Targets(self.labels[rows], self.weights[rows], self.objective.label_smoothing, self.objective.z_loss, self.objective.factor),
            Vocabulary(self.table, self.bias, chunks, self.objective.compute),
            exponentials(predictions, chunks, lender, self.weights) if self.keeps else None,
        )
