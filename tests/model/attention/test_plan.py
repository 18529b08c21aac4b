"""Who goes which way, and what a plan remembers."""

import numpy as np
import pytest
import torch

from tests.model.attention.examples import as_mask, boundaries
from xlm.errors import UserError
from xlm.model.attention import plan_attention
from xlm.model.attention.runs import Run


def test_what_callers_read():
    plan = plan_attention(boundaries([3, 0, 9]), 4)
    assert (plan.longest, plan.tokens, plan.heads) == (9, 12, 4)
    assert (plan_attention(boundaries([]), 4).longest, plan_attention(boundaries([]), 4).tokens) == (0, 0)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("reach", [None, 50, 2000])
def test_every_sequence_that_is_not_empty_goes_exactly_one_way(fused, reach):
    generator = torch.Generator().manual_seed(0)
    lengths = [*torch.randint(0, 200, (60,), generator=generator).tolist(), 256, 256, 255, 1500, 40]
    plan = plan_attention(boundaries(lengths), 4, reach=reach)
    route = plan.route(fused=fused)
    seen = np.zeros(plan.tokens, dtype=int)
    for group in route.groups:
        rows = group.write_output[group.write_output < plan.tokens * 4]
        np.add.at(seen, (rows[rows % 4 == 0] // 4).numpy(), 1)
    for run in route.runs:
        seen[run.start : run.start + run.count * run.length] += 1
    for sequence in route.tiled:
        for tile in sequence.tiles:
            seen[tile.first_query : tile.end_query] += 1
    assert (seen == 1).all()
    assert bool(route.runs) == fused
    assert bool(route.tiled) == (not fused or reach == 50)


def test_the_way_depends_on_shapes_alone_and_is_worked_out_once():
    plan = plan_attention(boundaries([8, 300, 64]), 4)
    assert plan.route(fused=True) is plan.route(fused=True)
    assert [group.length for group in plan.route(fused=True).groups] == [8]
    assert [run.length for run in plan.route(fused=True).runs] == [300, 64]
    assert [group.length for group in plan.route(fused=False).groups] == [8, 64]


def test_neighbours_of_one_length_and_kind_share_a_call():
    plan = plan_attention(boundaries([128] * 4 + [200] + [128] * 2), 4, causal=as_mask([False] * 3 + [True] + [False] * 3))
    assert plan.route(fused=True).runs == (
        Run(0, 3, 128, causal=False),
        Run(384, 1, 128, causal=True),
        Run(512, 1, 200, causal=False),
        Run(712, 2, 128, causal=False),
    )


def test_a_window_that_shows_everything_is_none():
    plan = plan_attention(boundaries([128, 129]), 4, reach=127)
    assert [(run.length, run.window is None) for run in plan.route(fused=True).runs] == [(128, True), (129, False)]


def test_sequences_much_longer_than_their_window_are_tiled():
    plan = plan_attention(boundaries([256, 300]), 4, reach=64)
    route = plan.route(fused=True)
    assert [run.length for run in route.runs] == [256]
    assert [sequence.end - sequence.start for sequence in route.tiled] == [300]


def test_16_bits_are_grouped_until_scores_leave_the_cache():
    plan = plan_attention(boundaries([512, 1024, 2048]), 4)
    assert [group.length for group in plan.route(fused=False, sixteen_bits=True).groups] == [512, 1024]
    assert [group.length for group in plan.route(fused=False).groups] == []
    plan = plan_attention(boundaries([512, 1024]), 12)
    assert [group.length for group in plan.route(fused=False, sixteen_bits=True).groups] == [512]


def test_a_long_sequence_of_many_heads_is_tiled_by_some_heads_at_a_time():
    (sequence,) = plan_attention(boundaries([8192]), 12).route(fused=False).tiled
    assert {(tile.heads.start, tile.heads.stop) for tile in sequence.tiles} == {(0, 4), (4, 8), (8, 12)}
    assert {tile.end_query - tile.first_query for tile in sequence.tiles} == {128}
    (sequence,) = plan_attention(boundaries([2048]), 12).route(fused=False).tiled
    assert {(tile.heads.start, tile.heads.stop) for tile in sequence.tiles} == {(0, 12)}


def test_a_negative_reach_is_a_mistake_of_the_user():
    with pytest.raises(UserError, match="reaches -1 tokens"):
        plan_attention(boundaries([4]), 2, reach=-1)
