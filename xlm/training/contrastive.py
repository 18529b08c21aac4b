"""InfoNCE over the logical group of pairs of a step, the same for any number of ranks.

van den Oord et al. 2018 (InfoNCE), both directions as in Radford et al. 2021 (CLIP) and the sentence
contrast of Chi et al. 2021 (InfoXLM). Every rank computes the whole loss on the gathered vectors with only
its own rows attached to its graph. As the loss is a function of all rows, its gradient is the sum over
rows of the gradient through each; each rank contributes its rows, and the sum over ranks is the exact
gradient of the one global loss, with no communication in the backward pass.

Pairs say the same thing, and are no negatives of each other, where they have one key or where a side is the same text,
piece by piece: short strings are often translated alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 (the name the field uses)
from torch import Tensor

# Odd numbers of 64 bits, as signed ones.
_ODD, _GOLDEN = 0x5851F42D4C957F2D, 0x9E3779B97F4A7C15 - (1 << 64)
_SHIFT = 29


@dataclass(frozen=True)
class Pairs:
    """N pairs of unit vectors with what tells them apart."""

    sources: Tensor  # [N, d] fp32, unit length
    targets: Tensor  # [N, d] fp32, unit length
    keys: Tensor  # [N] int64; equal keys say the same thing
    indices: Tensor  # [N] int64, numbers a pair within the global batch
    texts: Tensor  # [N, 2] int64, what `text_hashes` says of the source and of the target

    def names(self) -> Tensor:
        """Return everything but the vectors, [N, 4] int64: key, index and texts."""
        return torch.cat([self.keys[:, None], self.indices[:, None], self.texts], dim=1)

    def with_vectors(self, sources: Tensor, targets: Tensor) -> Pairs:
        """Return the same pairs with other vectors."""
        return replace(self, sources=sources, targets=targets)


def unit_vectors(vectors: Tensor) -> Tensor:
    """Scale [N, d] rows to length 1 in fp32."""
    return F.normalize(vectors.float(), dim=-1)


def text_hashes(input_ids: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Return a 64-bit number for the pieces and their order of each sequence, [T] and [S + 1] to [S] int64."""
    lengths = cu_seqlens.diff().long()
    sequence = torch.repeat_interleave(torch.arange(len(lengths), device=input_ids.device), lengths, output_size=len(input_ids))
    place = torch.arange(len(input_ids), device=input_ids.device) - cu_seqlens[:-1].long()[sequence]
    # Whole numbers wrap round and sum up the same in any order.
    mixed = _mixed((input_ids + 1) * _ODD + (place + 1) * _GOLDEN)
    return torch.zeros_like(lengths).index_add_(0, sequence, mixed)


def gather_pairs(own: Pairs, counts: tuple[int, ...]) -> Pairs:
    """Return the pairs of all ranks, ordered by ``indices``; only this rank's vectors carry gradients.

    ``counts`` is the number of pairs on each rank, known to all of them; every rank must call this, also
    one without pairs. In a single process no communication happens.
    """
    if len(counts) == 1:
        return _ordered(own)
    rank, room, width = dist.get_rank(), max(counts), own.sources.shape[1]
    own_count = counts[rank]
    if own.keys.numel() != own_count:
        raise RuntimeError(f"rank {rank} announced {own_count} pairs and holds {own.keys.numel()}")
    vectors = own.sources.new_zeros(room, 2, width)
    vectors[:own_count, 0], vectors[:own_count, 1] = own.sources.detach(), own.targets.detach()
    names = own.keys.new_zeros(room, 4)
    names[:own_count] = own.names()
    all_vectors = [torch.empty_like(vectors) for _ in counts]
    all_names = [torch.empty_like(names) for _ in counts]
    dist.all_gather(all_vectors, vectors)
    dist.all_gather(all_names, names)
    sources = [all_vectors[other][:count, 0] for other, count in enumerate(counts)]
    targets = [all_vectors[other][:count, 1] for other, count in enumerate(counts)]
    sources[rank], targets[rank] = own.sources, own.targets
    told = torch.cat([all_names[other][:count] for other, count in enumerate(counts)])
    return _ordered(Pairs(torch.cat(sources), torch.cat(targets), told[:, 0], told[:, 1], told[:, 2:]))


def pair_losses(pairs: Pairs, temperature: float, keys: Pairs | None = None, earlier: Pairs | None = None) -> Tensor:
    """Return the loss of each pair, [N] fp32: the mean of both directions; the objective is their mean.

    For pair i, with s the cosine similarities over the temperature,
    -(log softmax_j(s(source i, target j))[i] + log softmax_j(s(target i, source j))[i]) / 2, where j runs over i itself,
    the pairs of the step that say something else, and those of ``earlier`` steps. What is compared with are the same pairs'
    vectors of another encoder, the ``keys``, where these are given (MoCo, He et al. 2020).
    """
    keys = pairs if keys is None else keys
    same = _alike(pairs, keys)
    same.fill_diagonal_(False)
    against = keys if earlier is None else _joined(keys, earlier)
    if earlier is not None:
        same = torch.cat([same, _alike(pairs, earlier)], dim=1)
    gold = torch.arange(len(pairs.keys), device=pairs.keys.device)
    losses = [
        F.cross_entropy((queries @ others.T / temperature).masked_fill(same, float("-inf")), gold, reduction="none")
        for queries, others in ((pairs.sources, against.targets), (pairs.targets, against.sources))
    ]
    return 0.5 * (losses[0] + losses[1])


def _alike(pairs: Pairs, others: Pairs) -> Tensor:
    """Return which say the same thing, [N, M] bool."""
    alike = pairs.keys[:, None] == others.keys
    for side in range(2):
        alike |= pairs.texts[:, side, None] == others.texts[:, side]
    return alike


def _joined(first: Pairs, second: Pairs) -> Pairs:
    parts = [(group.sources, group.targets, group.keys, group.indices, group.texts) for group in (first, second)]
    return Pairs(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


def _ordered(pairs: Pairs) -> Pairs:
    # The order of the summands is then the same whatever rank a pair was on.
    order = torch.argsort(pairs.indices)
    return Pairs(pairs.sources[order], pairs.targets[order], pairs.keys[order], pairs.indices[order], pairs.texts[order])


def _mixed(values: Tensor) -> Tensor:
    """Spread int64 numbers over all bits (two rounds of multiply and shift)."""
    for _ in range(2):
        values = (values ^ (values >> _SHIFT)) * _ODD
    return values ^ (values >> _SHIFT)
