import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xlm.batching.assign import Assignment
from xlm.errors import UserError
from xlm.mixing.data_plan import DataPlan


@given(world_size=st.integers(1, 64), micro_batch_tokens=st.integers(1, 2000), step=st.integers(0, 49))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_row_is_dealt_once_evenly_and_pairs_first(setting, world_size, micro_batch_tokens, step):
    try:
        assignment = Assignment(setting.plan, world_size=world_size, micro_batch_tokens=micro_batch_tokens)
    except UserError:
        assert max(1, micro_batch_tokens // 64) * world_size < 10
        return
    refs = setting.plan.rows(step)
    dealt = [assignment.rows_of(refs, rank) for rank in range(world_size)]
    assert sorted(row for of_rank in dealt for micro in of_rank for row in micro) == list(range(len(refs)))
    rows_of_ranks = [sum(map(len, of_rank)) for of_rank in dealt]
    assert max(rows_of_ranks) - min(rows_of_ranks) <= 1
    for of_rank in dealt:
        assert len(of_rank) == assignment.micro_steps
        assert all(len(micro) <= max(1, micro_batch_tokens // refs[0].sequence_length) for micro in of_rank)
        for micro in of_rank[1:]:
            assert all(refs[row].objective != "contrastive" for row in micro)


def test_micro_steps_are_those_of_the_longest_phase(setting):
    # 20 rows of 32 or 10 of 64 a step, so 10 or 5 a rank; micro-batches of 5 rows or 2.
    assert Assignment(setting.plan, world_size=2, micro_batch_tokens=160).micro_steps == 3
    assert Assignment(setting.plan, world_size=1, micro_batch_tokens=640).micro_steps == 1


def test_a_group_that_does_not_fit_names_both_numbers_and_the_way_out(make_recipe, shards):
    plan = DataPlan(make_recipe([{"objectives": {"contrastive": {"share": 1.0}}}]), shards.index)
    with pytest.raises(
        UserError, match=r"up to 20 contrastive rows in a step, but only 12 fit .*6 rows of 32 tokens on each of 2"
    ) as error:
        Assignment(plan, world_size=2, micro_batch_tokens=200)
    assert "raise training.micro_batch_tokens to 320 (now 200)" in str(error.value)
    Assignment(plan, world_size=2, micro_batch_tokens=320)
