"""Short sequences: groups of similar length, padded inside attention only.

A group is gathered into one small block of rows (a row is the part of one head, ``width / heads`` numbers),
worked on while it is in the cache, and written back where it belongs. Padded slots read the sequence's last
token and write to a row behind the last one, which nobody reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from xlm.model.attention.products import attention_weights, scaled_product, score_gradient
from xlm.model.attention.weight_dropout import MultiplierStream

# A group takes the sequences whose length is at least this share of its longest: below .7 padding costs
# more than calls save, above .9 the calls cost more (benchmarks/NOTES.md).
GROUP_LENGTH_RATIO = 0.8
# Scores of one group, so that they and its rows stay in a core's cache.
GROUP_SCORES = 1 << 17

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Group:
    """``count`` sequences padded to ``length``: n = count * heads * length slots, by sequence, head, place.

    For T tokens and H heads ``read`` names rows of [T, 3, H] (queries, then keys, then values) and ``read_output``
    rows of [T, H]; ``write`` and ``write_output`` are the same with padded slots sent to the row behind the last.
    """

    count: int
    length: int
    read: Tensor  # [3 * n]
    write: Tensor  # [3 * n]
    read_output: Tensor  # [n]
    write_output: Tensor  # [n]
    padded: Tensor | None  # the slots that hold no token, None where all do
    hidden: Tensor | None  # [count or 1, 1, length or 1, length]: keys that a query does not see; None: sees all


def length_groups(lengths: Integers, members: Integers, heads: int, most_scores: int | None = GROUP_SCORES) -> list[Integers]:
    """Cut ``members`` (sequences) by length where it falls below the ratio, or a group has ``most_scores``; longest last."""
    order = members[np.argsort(lengths[members], kind="stable")]
    groups: list[Integers] = []
    end = len(order)
    while end > 0:
        longest = int(lengths[order[end - 1]])
        start = int(np.searchsorted(lengths[order[:end]], longest * GROUP_LENGTH_RATIO, side="left"))
        if most_scores is not None:
            start = max(start, end - max(1, most_scores // (heads * longest * longest)))
        groups.append(order[start:end])
        end = start
    return groups[::-1]


def build_group(bounds: Integers, members: Integers, heads: int, causal: Booleans, reach: int | None, device: torch.device) -> Group:
    """Work out where the rows of ``members`` lie; ``bounds`` [S + 1], ``causal`` [S]."""
    tokens = int(bounds[-1])
    lengths = (bounds[1:] - bounds[:-1])[members]
    place = np.arange(int(lengths.max()))
    real = place < lengths[:, None]
    token = bounds[members][:, None] + np.minimum(place, lengths[:, None] - 1)
    head = np.arange(heads)[:, None]
    read_output = token[:, None, :] * heads + head
    read = (token[:, None, :] * 3 + np.arange(3)[:, None, None, None]) * heads + head
    real_slot = np.broadcast_to(real[:, None, :], read_output.shape)

    def index(rows: Integers) -> Tensor:
        return torch.from_numpy(rows.ravel()).to(device)

    full = bool(real.all())
    hidden = hidden_keys(lengths, causal[members], reach)
    reads = index(read), index(read_output)
    writes = (
        reads if full else (index(np.where(real_slot, read, 3 * tokens * heads)), index(np.where(real_slot, read_output, tokens * heads)))
    )
    return Group(
        count=len(members),
        length=len(place),
        read=reads[0],
        write=writes[0],
        read_output=reads[1],
        write_output=writes[1],
        padded=None if full else index(np.flatnonzero(~real_slot)),
        hidden=None if hidden is None else torch.from_numpy(hidden[:, None]).to(device),
    )


def hidden_keys(lengths: Integers, causal: Booleans, reach: int | None) -> Booleans | None:
    """Return the keys that the queries of a group do not see, [count or 1, longest or 1, longest], or None for no such."""
    longest = int(lengths.max())
    place = np.arange(longest)
    padded = (place >= lengths[:, None])[:, None, :]
    if reach is None or longest <= reach + 1:
        reach = longest
    if reach == longest and not causal.any():
        return padded if padded.any() else None
    if (lengths == longest).all() and (causal == causal[0]).all():
        lengths, causal, padded = lengths[:1], causal[:1], padded[:1]
    query = np.minimum(place, lengths[:, None] - 1)  # a padded query repeats the last token, so that it sees something
    distance = query[:, :, None] - place
    hidden: Booleans = padded | ((distance < 0) & causal[:, None, None]) | (abs(distance) > reach)
    return hidden


def attend_groups(
    groups: tuple[Group, ...], rows: Tensor, output: Tensor, heads: int, scale: float, masks: MultiplierStream | None
) -> list[Tensor]:
    """Write the attention of ``groups`` into ``output`` [T * heads + 1, width / heads] from ``rows`` [T * 3 * heads, same].

    Returns the weights [count * heads, length, length] of the groups that `keeps_weights`, in order.
    """
    kept = []
    for group in groups:
        query, key, value = _read(group, rows, heads)
        weight = attention_weights(query, key, scale, group.hidden)
        if masks is not None:
            weight.mul_(masks.next(weight))
        elif keeps_weights(group, rows.shape[1]):
            kept.append(weight)
        output.index_copy_(0, group.write_output, torch.bmm(weight, value).view(-1, rows.shape[1]))
    return kept


def keeps_weights(group: Group, head_width: int) -> bool:
    """Whether weights are kept for backward: where they are no more numbers than the layer's output."""
    return group.length <= head_width


def differentiate_groups(
    groups: tuple[Group, ...],
    rows: Tensor,
    output_gradient: Tensor,
    gradient: Tensor,
    heads: int,
    scale: float,
    masks: MultiplierStream | None,
    kept: Sequence[Tensor],
) -> None:
    """Write into ``gradient`` [T * 3 * heads + 1, width / heads] what ``output_gradient`` [T * heads, same] makes of it.

    ``kept`` is what `attend_groups` returned; the other groups' weights are made again.
    """
    head_width = rows.shape[1]
    remembered = iter(kept)
    for group in groups:
        query, key, value = _read(group, rows, heads)
        arriving = output_gradient.index_select(0, group.read_output)
        if group.padded is not None:
            arriving.index_fill_(0, group.padded, 0.0)  # and so a padded query sends nothing on
        arriving = arriving.view(query.shape)
        if masks is None and keeps_weights(group, head_width):
            weight = next(remembered)
        else:
            weight = attention_weights(query, key, scale, group.hidden)
        multiplier = None if masks is None else masks.next(weight)
        parts = rows.new_empty(3, *query.shape)
        torch.bmm((weight if multiplier is None else weight * multiplier).transpose(1, 2), arriving, out=parts[2])
        scores = score_gradient(arriving, value, weight, multiplier)
        scaled_product(scores, key, scale, out=parts[0])
        scaled_product(scores.transpose(1, 2), query, scale, out=parts[1])
        gradient.index_copy_(0, group.write, parts.view(-1, head_width))


def _read(group: Group, rows: Tensor, heads: int) -> tuple[Tensor, ...]:
    """Return queries, keys and values, each [count * heads, length, width / heads]."""
    block = rows.index_select(0, group.read)
    return block.view(3, group.count * heads, group.length, rows.shape[1]).unbind(0)
