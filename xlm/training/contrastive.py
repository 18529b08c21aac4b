"""InfoNCE over the logical group of pairs of a step, the same for any number of ranks.

van den Oord et al. 2018 (InfoNCE), both directions as in Radford et al. 2021 (CLIP) and the sentence
contrast of Chi et al. 2021 (InfoXLM). Every rank computes the whole loss on the gathered vectors with only
its own rows attached to its graph. As the loss is a function of all rows, its gradient is the sum over
rows of the gradient through each; each rank contributes its rows, and the sum over ranks is the exact
gradient of the one global loss, with no communication in the backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 (the name the field uses)
from torch import Tensor


@dataclass(frozen=True)
class Pairs:
    """N pairs of unit vectors with what tells them apart."""

    sources: Tensor  # [N, d] fp32, unit length
    targets: Tensor  # [N, d] fp32, unit length
    keys: Tensor  # [N] int64; equal keys say the same thing
    indices: Tensor  # [N] int64, numbers a pair within the global batch


def unit_vectors(vectors: Tensor) -> Tensor:
    """Scale [N, d] rows to length 1 in fp32."""
    return F.normalize(vectors.float(), dim=-1)


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
    names = own.keys.new_zeros(room, 2)
    names[:own_count, 0], names[:own_count, 1] = own.keys, own.indices
    all_vectors = [torch.empty_like(vectors) for _ in counts]
    all_names = [torch.empty_like(names) for _ in counts]
    dist.all_gather(all_vectors, vectors)
    dist.all_gather(all_names, names)
    sources = [all_vectors[other][:count, 0] for other, count in enumerate(counts)]
    targets = [all_vectors[other][:count, 1] for other, count in enumerate(counts)]
    sources[rank], targets[rank] = own.sources, own.targets
    return _ordered(
        Pairs(
            torch.cat(sources),
            torch.cat(targets),
            torch.cat([all_names[other][:count, 0] for other, count in enumerate(counts)]),
            torch.cat([all_names[other][:count, 1] for other, count in enumerate(counts)]),
        )
    )


def pair_losses(pairs: Pairs, temperature: float) -> Tensor:
    """Return the loss of each pair, [N] fp32: the mean of both directions; the objective is their mean.

    For pair i, with s the cosine similarities over the temperature,
    -(log softmax_j(s[i, j])[i] + log softmax_j(s[j, i])[i]) / 2, where j runs over i itself and the pairs
    of another key: translations of the same text are no negatives.
    """
    logits = pairs.sources @ pairs.targets.T / temperature
    same = pairs.keys[:, None] == pairs.keys[None, :]
    same.fill_diagonal_(False)
    logits = logits.masked_fill(same, float("-inf"))
    gold = torch.arange(len(pairs.keys), device=logits.device)
    forth = F.cross_entropy(logits, gold, reduction="none")
    back = F.cross_entropy(logits.T, gold, reduction="none")
    return 0.5 * (forth + back)


def _ordered(pairs: Pairs) -> Pairs:
    # The order of the summands is then the same whatever rank a pair was on.
    order = torch.argsort(pairs.indices)
    return Pairs(pairs.sources[order], pairs.targets[order], pairs.keys[order], pairs.indices[order])
