"""Tiles: all that is seen and, with a window, little that is not."""

import pytest
import torch

from tests.model.attention.examples import boundaries, force, outputs_and_gradients, random_qkv
from xlm.model.attention import attend, plan_attention, reference_attention
from xlm.model.attention.tiles import MOST_QUERIES, TILE_SCORES, build_tiles


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("reach", [None, 0, 10, 70, 900, 5000])
def test_a_pair_is_in_a_tile_and_shown_exactly_where_the_query_sees_the_key(causal, reach):
    start, end = 100, 1600
    sequence = build_tiles(start, end, 2, causal=causal, reach=reach, masks={}, device=torch.device("cpu"))
    shown = torch.zeros(end - start, end - start, dtype=torch.int8)
    for tile in sequence.tiles:
        part = shown[tile.first_query - start : tile.end_query - start, tile.first_key - start : tile.end_key - start]
        part += 1 if tile.hidden is None else (~tile.hidden[0, 0]).to(torch.int8)
    distance = torch.arange(end - start)[:, None] - torch.arange(end - start)
    seen = (distance.abs() <= (end if reach is None else reach)) & ((distance >= 0) | (not causal))
    assert torch.equal(shown, seen.to(torch.int8))


def pairs(length, reach):
    sequence = build_tiles(0, length, 4, causal=False, reach=reach, masks={}, device=torch.device("cpu"))
    return sum((tile.end_query - tile.first_query) * (tile.end_key - tile.first_key) for tile in sequence.tiles)


def test_a_window_costs_in_proportion_to_length_times_reach():
    assert pairs(8192, 64) <= 3 * 8192 * 64
    assert pairs(16384, 64) <= 2.02 * pairs(8192, 64)
    assert pairs(8192, 128) <= 2.02 * pairs(8192, 64)


@pytest.mark.parametrize("reach", [None, 64, 3000])
def test_scores_of_a_tile_are_bounded_and_masks_are_shared(reach):
    masks = {}
    for start in (0, 8192):
        for tile in build_tiles(start, start + 8192, 12, causal=True, reach=reach, masks=masks, device=torch.device("cpu")).tiles:
            queries = tile.end_query - tile.first_query
            assert queries <= MOST_QUERIES
            heads = tile.heads.stop - tile.heads.start
            assert queries * heads * (tile.end_key - tile.first_key) <= TILE_SCORES
    if reach == 64:
        assert len(masks) == 2  # the first tile of a sequence, and all others


def test_many_tiles_that_add_to_one_key_lose_nothing_in_bf16(monkeypatch):
    lengths = [1024]
    qkv = random_qkv(lengths, 8, torch.bfloat16)
    exact_input = qkv.detach().float().requires_grad_()
    exact = outputs_and_gradients(lambda x: reference_attention(x, boundaries(lengths), 1), exact_input)[1][:, 8:]
    errors = {}
    for way in ("groups", "tiles"):
        force(way, monkeypatch)
        gradient = outputs_and_gradients(lambda x: attend(x, plan_attention(boundaries(lengths), 1)), qkv)[1][:, 8:]
        errors[way] = float((gradient.float() - exact).norm())
    assert errors["tiles"] < 1.3 * errors["groups"]
