"""The two visits that a block of predictions pays to the vocabulary, chunk by chunk."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from xlm.model.inverse_cdf import draw_chunks, draw_pieces

# The maximum of no logits: finite, so that a chunk of pieces that a bias of -inf rules out does no harm.
LOWEST = -1e30


@dataclass(frozen=True)
class Vocabulary:
    """The projection, cut into chunks; products run in the type ``compute``."""

    table: Tensor  # [V, d]
    bias: Tensor | None  # [V]
    chunks: list[slice]
    compute: torch.dtype


@dataclass(frozen=True)
class Targets:
    """What p predictions are held against; labels ascend, so that those of a chunk's pieces are neighbours."""

    labels: Tensor  # [p]
    weights: Tensor  # [p], of the type that sums are taken in
    label_smoothing: float
    z_loss: float
    factor: float  # of the gradients


class Block:
    """p predictions: `first_visit` has to come first, then `draw`, then `second_visit`, which uses up the exponentials."""

    def __init__(self, hidden: Tensor, targets: Targets, vocabulary: Vocabulary, kept: list[Tensor] | None) -> None:
        self.hidden, self.targets, self.vocabulary, self.kept = hidden, targets, vocabulary, kept
        labels, weights, chunks = targets.labels, targets.weights, vocabulary.chunks
        self.exact = weights.dtype
        self.scratch = weights.new_empty(len(labels) * (chunks[0].stop - chunks[0].start))
        edges = torch.tensor([*(chunk.start for chunk in chunks), chunks[-1].stop], device=labels.device)
        bounds = torch.searchsorted(labels, edges).tolist()
        self.owned = [slice(begin, end) for begin, end in pairwise(bounds)]

        # Exponentials of chunk n are relative to references[n], the largest logit up to there, and sum to masses[n].
        self.references: list[Tensor] = []
        self.masses: list[Tensor] = []
        self.normaliser = torch.zeros_like(weights)
        self.label_logits = torch.zeros_like(weights)
        self.logit_sums = torch.zeros_like(weights)
        self.table_sum = weights.new_zeros(vocabulary.table.shape[1])
        self.correct = torch.zeros_like(labels, dtype=torch.bool)

    def first_visit(self, d_hidden: Tensor | None) -> None:
        """Find the normaliser and what the label got; write the gradient [p, d] if it is wanted."""
        largest = torch.full_like(self.targets.weights, LOWEST)
        if d_hidden is not None:
            d_hidden.zero_()
        for number in range(len(self.vocabulary.chunks)):
            table, logits = self._project(number)
            self._look_at_labels(number, logits, largest)
            if self.targets.label_smoothing:
                self.logit_sums += logits.sum(1)
                self.table_sum += table.sum(0, dtype=self.exact)
            reference = torch.maximum(largest, logits.amax(1))
            decay = largest.sub_(reference).exp_()
            mass = logits.sub_(reference[:, None]).exp_().sum(1)
            self.normaliser.mul_(decay).add_(mass)
            self.references.append(reference)
            self.masses.append(mass)
            largest = reference.clone()
            if d_hidden is not None:
                d_hidden.mul_(decay[:, None])
                _add_product(d_hidden, logits.to(table.dtype), table)
        self.correct &= self.label_logits == largest
        self.largest = largest
        self._weigh()
        if d_hidden is not None:
            self._finish(d_hidden)

    def _project(self, number: int) -> tuple[Tensor, Tensor]:
        """Return the pieces' rows [c, d] and their logits [p, c], where the exponentials are to lie."""
        vocabulary, chunk = self.vocabulary, self.vocabulary.chunks[number]
        table = vocabulary.table[chunk].to(vocabulary.compute)
        bias = None if vocabulary.bias is None else vocabulary.bias[chunk].to(vocabulary.compute)
        logits = self._scratch(chunk) if self.kept is None else self.kept[number]
        if vocabulary.compute != self.exact:
            logits.copy_(F.linear(self.hidden, table, bias))
        elif bias is None:
            torch.mm(self.hidden, table.t(), out=logits)
        else:
            torch.addmm(bias, self.hidden, table.t(), out=logits)
        return table, logits

    def _scratch(self, chunk: slice) -> Tensor:
        count = chunk.stop - chunk.start
        memory = self.scratch[: len(self.hidden) * count]
        return memory.view(-1, count)

    def _places(self, number: int) -> Tensor:
        """Return where in the chunk the labels are of the predictions that have theirs there."""
        labels = self.targets.labels[self.owned[number], None]
        return labels.sub(self.vocabulary.chunks[number].start)

    def _look_at_labels(self, number: int, logits: Tensor, largest_before: Tensor) -> None:
        rows = self.owned[number]
        if rows.stop > rows.start:
            places = self._places(number)
            found = logits[rows].gather(1, places)
            self.label_logits[rows] = found[:, 0]
            self.correct[rows] = (logits[rows].argmax(1, keepdim=True) == places)[:, 0] & (found[:, 0] > largest_before[rows])

    def _weigh(self) -> None:
        """From the normaliser: the losses, their weighted sum, and the factors of the three parts of the gradient."""
        targets, pieces = self.targets, self.vocabulary.chunks[-1].stop
        smoothing = targets.label_smoothing
        log_rest = self.normaliser.log()
        log_normaliser = self.largest + log_rest
        # The difference of the logits first: it is exact where they are large and near each other.
        self.losses = (self.largest - self.label_logits) + log_rest
        loss = self.losses
        if smoothing:
            loss = torch.lerp(loss, log_normaliser - self.logit_sums / pieces, smoothing)
        self.total = (targets.weights * (loss + targets.z_loss * log_normaliser**2)).sum()
        weights = targets.weights * targets.factor
        self.on_softmax = weights * (1 + 2 * targets.z_loss * log_normaliser) / self.normaliser
        self.on_label = weights * (1 - smoothing)
        self.on_all = weights * (smoothing / pieces)

    def _finish(self, d_hidden: Tensor) -> None:
        d_hidden.mul_(self.on_softmax[:, None])
        labels = self.vocabulary.table.index_select(0, self.targets.labels).to(self.exact)
        d_hidden.addcmul_(labels, self.on_label[:, None], value=-1)
        if self.targets.label_smoothing:
            d_hidden.addcmul_(self.table_sum[None], self.on_all[:, None], value=-1)

    def draw(self, uniforms: Tensor) -> Tensor:
        """Return pieces [p] drawn with ``uniforms`` [p]; only the chunks they fall into are looked at."""
        kept, chunks = _required(self.kept), self.vocabulary.chunks
        shares = [self._share(number) / self.normaliser for number in range(len(chunks))]
        masses = torch.stack([mass * share for mass, share in zip(self.masses, shares, strict=True)], dim=1)
        chosen, left = draw_chunks(masses, uniforms)
        in_order, rows = torch.sort(chosen, stable=True)
        bounds = torch.searchsorted(in_order, torch.arange(len(chunks) + 1, device=rows.device)).tolist()
        samples = torch.empty_like(chosen)
        for number, chunk in enumerate(chunks):
            drawing = rows[bounds[number] : bounds[number + 1]]
            if len(drawing):
                probabilities = kept[number].index_select(0, drawing) * shares[number][drawing, None]
                samples[drawing] = chunk.start + draw_pieces(probabilities, left[drawing])
        return samples

    def _share(self, number: int) -> Tensor:
        """Return what makes exponentials of a chunk relative to the largest logit of all, [p]."""
        below: Tensor = self.references[number] - self.largest
        return below.exp_()

    def second_visit(self, d_table: Tensor | None, d_bias: Tensor | None, *, add: bool) -> None:
        """Write the gradient [V, d], or ``add`` to it, and add to that of the bias [V].

        It goes from the last chunk to the first, as `exponentials` asks for.
        """
        kept = _required(self.kept)
        for number, chunk in reversed(list(enumerate(self.vocabulary.chunks))):
            factor = self.on_softmax * self._share(number)
            d_logits = torch.mul(kept[number], factor[:, None], out=self._scratch(chunk))
            if self.targets.label_smoothing:
                d_logits.sub_(self.on_all[:, None])
            rows = self.owned[number]
            if rows.stop > rows.start:
                d_logits[rows].scatter_add_(1, self._places(number), -self.on_label[rows, None])
            if d_bias is not None:
                d_bias[chunk] += d_logits.sum(0)
            if d_table is not None:
                _put_product(d_table[chunk], d_logits.to(self.hidden.dtype).t(), self.hidden, add=add)


def _put_product(target: Tensor, left: Tensor, right: Tensor, *, add: bool) -> None:
    if add:
        _add_product(target, left, right)
    elif target.dtype == left.dtype:
        torch.mm(left, right, out=target)
    else:
        target.copy_(left @ right)


def _add_product(target: Tensor, left: Tensor, right: Tensor) -> None:
    if target.dtype == left.dtype:
        target.addmm_(left, right)
    else:
        target.add_(left @ right)


def _required(kept: list[Tensor] | None) -> list[Tensor]:
    if kept is None:
        raise RuntimeError("the exponentials were not kept")
    return kept
