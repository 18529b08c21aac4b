"""Long sequences as tiles: a stretch of queries with the keys they can see, read where they lie.

Nothing is gathered: a tile is a view of the projected tokens. A window of ``reach`` tokens on each side costs
O(L * reach), and of the scores no more than one tile exists at a time.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from xlm.model.attention.products import attention_weights, scaled_product, score_gradient
from xlm.model.attention.weight_dropout import MultiplierStream

# Scores of a tile over all heads: 16 MiB in fp32; four times as many take twice as long at 8,192 tokens.
TILE_SCORES = 1 << 22
# Fewer queries than this waste the call, more gain nothing.
FEWEST_QUERIES, MOST_QUERIES = 64, 512
# Where a tile of all heads would have fewer than these, it takes fewer heads.
QUERIES_OF_ALL_HEADS = 128


@dataclass(frozen=True)
class Tile:
    """Tokens [first_query, end_query) and the tokens [first_key, end_key) that one of them sees, of some heads."""

    heads: slice
    first_query: int
    end_query: int
    first_key: int
    end_key: int
    hidden: Tensor | None  # [1, 1, queries, keys] bool: pairs inside the tile that do not see each other


@dataclass(frozen=True)
class TiledSequence:
    """One sequence, tokens [start, end), as tiles that cover the queries of each head once."""

    start: int
    end: int
    tiles: tuple[Tile, ...]


def build_tiles(
    start: int, end: int, heads: int, *, causal: bool, reach: int | None, masks: dict[tuple[int, ...], Tensor], device: torch.device
) -> TiledSequence:
    """Cut the sequence [start, end); tiles of one form share their mask through ``masks``."""
    length = end - start
    span = length if reach is None else min(reach, length)
    keys = min(length, 3 * span + 1)
    together = min(heads, max(1, TILE_SCORES // (min(QUERIES_OF_ALL_HEADS, max(1, span)) * keys)))
    queries = max(FEWEST_QUERIES, min(MOST_QUERIES, span, TILE_SCORES // (together * keys)))
    tiles = []
    blocks = [slice(first, min(first + together, heads)) for first in range(0, heads, together)]
    for block, first_query in itertools.product(blocks, range(start, end, queries)):
        end_query = min(end, first_query + queries)
        first_key = max(start, first_query - span)
        end_key = end_query if causal else min(end, end_query + span)
        form = (end_query - first_query, end_key - first_key, first_query - first_key, int(causal))
        if form not in masks:
            masks[form] = _hidden(*form, reach=length if reach is None else reach).to(device)
        hidden = masks[form]
        tiles.append(Tile(block, first_query, end_query, first_key, end_key, hidden if hidden.numel() else None))
    return TiledSequence(start, end, tuple(tiles))


def _hidden(queries: int, keys: int, offset: int, causal: int, *, reach: int) -> Tensor:
    """Return [1, 1, queries, keys] bool: what query ``offset + i`` does not see of the keys; empty where it sees all."""
    distance = (torch.arange(queries) + offset)[:, None] - torch.arange(keys)
    hidden = distance.abs() > reach
    if causal:
        hidden |= distance < 0
    return hidden[None, None] if bool(hidden.any()) else torch.empty(0, dtype=torch.bool)


def attend_tiles(sequences: tuple[TiledSequence, ...], qkv: Tensor, output: Tensor, scale: float, masks: MultiplierStream | None) -> None:
    """Write the attention of ``sequences`` into ``output`` [T, heads, width / heads] from ``qkv`` [T, 3, heads, same]."""
    for sequence in sequences:
        for tile in sequence.tiles:
            query, key, value = _read(tile, qkv)
            weight = attention_weights(query, key, scale, tile.hidden)
            if masks is not None:
                weight.mul_(masks.next(weight))
            output[tile.first_query : tile.end_query, tile.heads].copy_(torch.bmm(weight, value).transpose(0, 1))


def differentiate_tiles(
    sequences: tuple[TiledSequence, ...],
    qkv: Tensor,
    output_gradient: Tensor,
    gradient: Tensor,
    scale: float,
    masks: MultiplierStream | None,
) -> None:
    """Write into ``gradient`` [T, 3, heads, width / heads] what ``output_gradient`` [T, heads, same] makes of it."""
    heads, head_width = qkv.shape[2:]
    wide = torch.promote_types(qkv.dtype, torch.float32)  # many tiles add to one key: not in 8 bits of precision
    for sequence in sequences:
        sums = torch.zeros(2, heads, sequence.end - sequence.start, head_width, dtype=wide, device=qkv.device)
        for tile in sequence.tiles:
            query, key, value = _read(tile, qkv)
            arriving = output_gradient[tile.first_query : tile.end_query, tile.heads].transpose(0, 1)
            weight = attention_weights(query, key, scale, tile.hidden)
            multiplier = None if masks is None else masks.next(weight)
            keys = slice(tile.first_key - sequence.start, tile.end_key - sequence.start)
            sums[1, tile.heads, keys] += torch.bmm((weight if multiplier is None else weight * multiplier).transpose(1, 2), arriving)
            scores = score_gradient(arriving, value, weight, multiplier)
            sums[0, tile.heads, keys] += scaled_product(scores.transpose(1, 2), query, scale)
            gradient[tile.first_query : tile.end_query, 0, tile.heads].copy_(scaled_product(scores, key, scale).transpose(0, 1))
        gradient[sequence.start : sequence.end, 1:].copy_(sums.permute(2, 0, 1, 3))


def _read(tile: Tile, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return views of queries [heads, queries, width / heads], keys and values [heads, keys, width / heads]."""
    query = qkv[tile.first_query : tile.end_query, 0, tile.heads].transpose(0, 1)
    key, value = (qkv[tile.first_key : tile.end_key, part, tile.heads].transpose(0, 1) for part in (1, 2))
    return query, key, value
