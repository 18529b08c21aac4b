"""The two visits to the vocabulary that give the loss and all its gradients.

Both go through the vocabulary in chunks. The first makes a chunk's logits and from them, with a running
maximum (Milakov & Gimelshein 2018), the normaliser and the gradient of the hidden states. The second needs the
normaliser, and turns the exponentials that the first has left behind into the gradients of table and bias: the
vocabulary is projected once.

The exponentials of a chunk lie where the gradient of its rows will be written, which has room for d predictions
and has to exist anyway. Predictions beyond those come in further blocks, whose exponentials have a place of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from xlm.model.inverse_cdf import draw_chunks, draw_pieces

# Logits a chunk holds: few enough to stay in a processor's cache; a GPU wants more work at a time.
CHUNK_LOGITS = 1 << 19
GPU_CHUNK_LOGITS = 1 << 24
MIN_CHUNK_PIECES = 256
# Exponentials that a block keeps outside of the gradient (128 MiB), but never so few predictions that reading the table dominates.
KEPT_EXPONENTIALS = 1 << 25
MIN_BLOCK = 64
# The maximum of no logits: finite, so that a chunk of pieces that are ruled out by a bias of -inf does no harm.
LOWEST = -1e30


@dataclass(frozen=True)
class Objective:
    """What is asked of P predictions."""

    labels: Tensor  # [P] int64
    weights: Tensor  # [P]
    label_smoothing: float
    z_loss: float
    uniforms: Tensor | None  # [P] in [0, 1)
    compute: torch.dtype  # of the matrix products


@dataclass(frozen=True)
class Needs:
    """Whose gradient is needed."""

    hidden: bool
    table: bool
    bias: bool


@dataclass(frozen=True)
class Visited:
    """Loss and gradients for a factor of 1."""

    total: Tensor  # scalar
    losses: Tensor  # [P]
    correct: Tensor  # [P] bool
    samples: Tensor | None  # [P] int64
    d_hidden: Tensor | None  # [P, d]
    d_table: Tensor | None  # [V, d]
    d_bias: Tensor | None  # [V]


def visit_vocabulary(hidden: Tensor, table: Tensor, bias: Tensor | None, objective: Objective, needs: Needs) -> Visited:
    """Return what `xlm.model.vocabulary_loss` describes, with the gradients that are needed."""
    with torch.no_grad(), torch.autocast(hidden.device.type, enabled=False):
        visits = _Visits(hidden, table, bias, objective, needs)
        for rows in _blocks(len(hidden), visits.room, len(table)):
            visits.block(rows)
        return visits.result(hidden.dtype)


def _blocks(predictions: int, room: int, vocabulary: int) -> Iterator[slice]:
    """Cut the predictions: as many as there is room for in the gradient, then equal parts of what may be kept elsewhere."""
    start = min(room, predictions)
    if start:
        yield slice(0, start)
    left = predictions - start
    count = -(-left // max(MIN_BLOCK, KEPT_EXPONENTIALS // vocabulary))
    for number in range(count):
        yield slice(start + left * number // count, start + left * (number + 1) // count)


class _Visits:
    """All predictions in order of their labels, so that those of a chunk's pieces are neighbours; and what they add up to."""

    def __init__(self, hidden: Tensor, table: Tensor, bias: Tensor | None, objective: Objective, needs: Needs) -> None:
        self.exact = exact = torch.promote_types(torch.float32, hidden.dtype)
        self.table, self.bias, self.compute = table, bias, objective.compute
        self.smoothing, self.z_loss = objective.label_smoothing, objective.z_loss
        self.labels, self.order = torch.sort(objective.labels, stable=True)
        self.hidden = hidden.to(objective.compute).index_select(0, self.order)
        self.weights = objective.weights.to(exact).index_select(0, self.order)
        self.uniforms = None if objective.uniforms is None else objective.uniforms.index_select(0, self.order)

        predictions, (vocabulary, width) = len(hidden), table.shape
        # The sums of a single block are rounded as they are written; those of several are taken exactly and rounded once.
        single = predictions * exact.itemsize <= width * table.element_size()
        sums = table.dtype if single else exact
        self.d_hidden = hidden.new_zeros(hidden.shape, dtype=exact) if needs.hidden else None
        self.d_table = table.new_empty(table.shape, dtype=sums) if needs.table else None
        self.d_bias = table.new_empty(vocabulary, dtype=exact) if needs.bias else None
        self.keeps = needs.table or needs.bias or self.uniforms is not None
        self.room = width * sums.itemsize // exact.itemsize if needs.table else 0 if self.keeps else predictions
        self.total = hidden.new_zeros((), dtype=exact)
        self.losses = hidden.new_empty(predictions, dtype=exact)
        self.correct = torch.zeros(predictions, dtype=torch.bool, device=hidden.device)
        self.samples = None if self.uniforms is None else torch.zeros_like(self.labels)
        if predictions == 0:
            for gradient in (self.d_table, self.d_bias):
                if gradient is not None:
                    gradient.zero_()

    def result(self, dtype: torch.dtype) -> Visited:
        """Bring everything back into the order and the types of the input."""
        inverse = torch.argsort(self.order)
        return Visited(
            total=self.total,
            losses=self.losses.index_select(0, inverse),
            correct=self.correct.index_select(0, inverse),
            samples=None if self.samples is None else self.samples.index_select(0, inverse),
            d_hidden=None if self.d_hidden is None else self.d_hidden.index_select(0, inverse).to(dtype),
            d_table=None if self.d_table is None else self.d_table.to(self.table.dtype),
            d_bias=None if self.d_bias is None or self.bias is None else self.d_bias.to(self.bias.dtype),
        )

    def block(self, rows: slice) -> None:
        """Visit the vocabulary twice for the predictions ``rows``."""
        chunks = self._chunks(rows)
        first = rows.start == 0
        size = rows.stop - rows.start
        labels, weights = self.labels[rows], self.weights[rows]
        edges = torch.tensor([chunk.start for chunk in chunks] + [len(self.table)], device=labels.device)
        bounds = torch.searchsorted(labels, edges).tolist()
        scratch = self.table.new_empty(size * (chunks[0].stop - chunks[0].start), dtype=self.exact)
        kept = self._kept(rows, chunks)
        hidden = self.hidden[rows]

        largest = self.weights.new_full((size,), LOWEST)
        normaliser = torch.zeros_like(largest)
        label_logits = torch.zeros_like(largest)
        logit_sums = torch.zeros_like(largest)
        correct = self.correct[rows]
        references: list[Tensor] = []
        masses: list[Tensor] = []
        table_sum = self.weights.new_zeros(self.table.shape[1])
        d_hidden = None if self.d_hidden is None else self.d_hidden[rows]
        for number, chunk in enumerate(chunks):
            table = self.table[chunk].to(self.compute)
            logits = scratch[: size * len(table)].view(size, len(table)) if kept is None else kept[number]
            self._project(hidden, table, chunk, logits)
            own = slice(bounds[number], bounds[number + 1])
            if own.stop > own.start:
                places = labels[own] - chunk.start
                label_logits[own] = logits[own].gather(1, places[:, None]).squeeze(1)
                correct[own] = (logits[own].argmax(1) == places) & (label_logits[own] > largest[own])
            reference = torch.maximum(largest, logits.amax(1))
            if self.smoothing:
                logit_sums += logits.sum(1)
                table_sum += table.sum(0, dtype=self.exact)
            decay = (largest - reference).exp_()
            mass = logits.sub_(reference[:, None]).exp_().sum(1)
            normaliser = normaliser.mul_(decay).add_(mass)
            largest = reference
            references.append(reference)
            masses.append(mass)
            if d_hidden is not None:
                d_hidden.mul_(decay[:, None])
                if self.compute == self.exact:
                    d_hidden.addmm_(logits, table)
                else:
                    d_hidden.add_(logits.to(self.compute) @ table)
        correct &= label_logits == largest
        log_normaliser = largest + normaliser.log()
        losses = (largest - label_logits) + normaliser.log()
        self.losses[rows] = losses
        smoothed = losses
        if self.smoothing:
            smoothed = (1 - self.smoothing) * losses + self.smoothing * (log_normaliser - logit_sums / len(self.table))
        self.total += (weights * (smoothed + self.z_loss * log_normaliser**2)).sum()

        factor = weights * (1 + 2 * self.z_loss * log_normaliser) / normaliser
        on_label = weights * (1 - self.smoothing)
        on_all = weights * (self.smoothing / len(self.table))
        if d_hidden is not None:
            d_hidden.mul_(factor[:, None])
            d_hidden.addcmul_(self.table.index_select(0, labels).to(self.exact), on_label[:, None], value=-1)
            if self.smoothing:
                d_hidden.addcmul_(table_sum[None], on_all[:, None], value=-1)
        if kept is None:
            return
        shares = [(reference - largest).exp_() for reference in references]
        if self.uniforms is not None and self.samples is not None:
            drawn, remainders = draw_chunks(
                torch.stack([mass * share for mass, share in zip(masses, shares, strict=True)], 1), self.uniforms[rows]
            )
            chosen, by_chunk = torch.sort(drawn, stable=True)
            drawn_bounds = torch.searchsorted(chosen, torch.arange(len(chunks) + 1, device=chosen.device)).tolist()
            for number, chunk in enumerate(chunks):
                who = by_chunk[drawn_bounds[number] : drawn_bounds[number + 1]]
                if len(who):
                    probabilities = kept[number].index_select(0, who) * shares[number][who][:, None]
                    self.samples[rows][who] = chunk.start + draw_pieces(probabilities, remainders[who])
        if self.d_table is None and self.d_bias is None:
            return
        for number, chunk in enumerate(chunks):
            count = chunk.stop - chunk.start
            d_logits = torch.mul(kept[number], (factor * shares[number])[:, None], out=scratch[: size * count].view(size, count))
            if self.smoothing:
                d_logits.sub_(on_all[:, None])
            own = slice(bounds[number], bounds[number + 1])
            if own.stop > own.start:
                places = labels[own] - chunk.start
                d_logits[own].scatter_add_(1, places[:, None], -on_label[own][:, None])
            if self.d_bias is not None:
                if first:
                    torch.sum(d_logits, 0, out=self.d_bias[chunk])
                else:
                    self.d_bias[chunk] += d_logits.sum(0)
            if self.d_table is not None:
                target = self.d_table[chunk]
                d_logits = d_logits.to(self.compute)
                if not first:
                    if self.compute == target.dtype:
                        target.addmm_(d_logits.t(), hidden)
                    else:
                        target.add_(d_logits.t() @ hidden)
                elif self.compute == target.dtype:
                    torch.mm(d_logits.t(), hidden, out=target)
                else:
                    target.copy_(d_logits.t() @ hidden)

    def _project(self, hidden: Tensor, table: Tensor, chunk: slice, out: Tensor) -> None:
        bias = None if self.bias is None else self.bias[chunk].to(self.compute)
        if self.compute != self.exact:
            out.copy_(F.linear(hidden, table, bias))
        elif bias is None:
            torch.mm(hidden, table.t(), out=out)
        else:
            torch.addmm(bias, hidden, table.t(), out=out)

    def _chunks(self, rows: slice) -> list[slice]:
        wanted = CHUNK_LOGITS if self.table.device.type == "cpu" else GPU_CHUNK_LOGITS
        size = max(MIN_CHUNK_PIECES, wanted // max(rows.stop - rows.start, 1))
        vocabulary = len(self.table)
        return [slice(start, min(start + size, vocabulary)) for start in range(0, vocabulary, size)]

    def _kept(self, rows: slice, chunks: list[slice]) -> list[Tensor] | None:
        """Return a place for the exponentials of each chunk, [p, c]; None if nobody asks for them after the first visit."""
        if not self.keeps:
            return None
        size = rows.stop - rows.start
        if self.d_table is not None and rows.start == 0:
            memory = self.d_table.view(self.exact) if self.d_table.dtype != self.exact else self.d_table
            return [memory[chunk].view(-1)[: size * (chunk.stop - chunk.start)].view(size, -1) for chunk in chunks]
        memory = self.table.new_empty(size * len(self.table), dtype=self.exact)
        return [memory[size * chunk.start : size * chunk.stop].view(size, -1) for chunk in chunks]
