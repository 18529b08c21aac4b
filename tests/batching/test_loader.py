"""Promise 1 where it meets the trainer: the global batch is the same however it is computed."""

import pickle
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_up_batches import same_batches

from xlm.batching.loader import BatchLoader
from xlm.batching.packed_batch import PAIRS_PER_ROW
from xlm.config.training import LoaderSection
from xlm.errors import UserError
from xlm.mixing.data_plan import DataPlan

SEQUENCE_FIELDS = ("sequence_objective", "pair_key", "pair_index", "sequence_label", "row_id")
TOKEN_FIELDS = ("input_ids", "position_ids", "token_type_ids", "language_ids")


def build(setting, **changes):
    given_options = {"rank": 0, "world_size": 1, "micro_batch_tokens": 320, **changes}
    return BatchLoader(setting.plan, setting.shards, setting.pieces, setting.seed, **given_options)


def sequences_of(batch):
    """Return every sequence of a batch as plain values: tokens, what is predicted in it, and its numbers."""
    bounds = batch.cu_seqlens.tolist()
    predictions = list(
        zip(
            batch.predict_positions.tolist(),
            batch.labels.tolist(),
            batch.prediction_objective.tolist(),
            batch.uniforms.tolist(),
            strict=True,
        )
    )
    for number, (start, end) in enumerate(pairwise(bounds)):
        tokens = tuple(tuple(getattr(batch, name)[start:end].tolist()) for name in TOKEN_FIELDS)
        inside = tuple((position - start, *of_prediction) for position, *of_prediction in predictions if start <= position < end)
        yield (*tokens, inside, *(int(getattr(batch, name)[number]) for name in SEQUENCE_FIELDS))


def global_batch(setting, step, world_size, micro_batch_tokens):
    found, micro_steps = Counter(), set()
    for rank in range(world_size):
        loader = build(setting, rank=rank, world_size=world_size, micro_batch_tokens=micro_batch_tokens)
        batches = loader.batch(step)
        micro_steps.add(len(batches))
        assert len(batches) <= loader.micro_steps
        for batch in batches:
            found.update(sequences_of(batch))
    assert len(micro_steps) == 1  # a rank that takes part less often than others would leave them waiting
    return found


@pytest.mark.parametrize("step", [0, 7, 29, 30, 49])
def test_a_global_batch_does_not_depend_on_ranks_or_micro_batches(setting, step):
    whole = global_batch(setting, step, 1, 640)
    assert sum(whole.values()) > 30
    for world_size, micro_batch_tokens in ((1, 288), (2, 320), (2, 160), (4, 160), (4, 10_000), (16, 64), (64, 1)):
        assert global_batch(setting, step, world_size, micro_batch_tokens) == whole


@given(world_size=st.integers(1, 64), micro_batch_tokens=st.integers(64, 800), step=st.integers(0, 49))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_world_sizes_from_1_to_64(setting, world_size, micro_batch_tokens, step):
    try:
        found = global_batch(setting, step, world_size, micro_batch_tokens)
    except UserError:
        assert (micro_batch_tokens // 64) * world_size < 10
        return
    assert found == global_batch(setting, step, 1, 640)


def test_a_batch_asked_for_directly_is_the_one_in_turn(setting):
    in_turn = dict(build(setting).iterate(0, setting.plan.total_steps))
    assert sorted(in_turn) == list(range(setting.plan.total_steps))
    for step in (41, 2, 30, 29):
        assert same_batches(build(setting).batch(step), in_turn[step])


def test_workers_give_the_same_batches(setting):
    alone = list(build(setting, rank=1, world_size=2).iterate(25, 35))
    together = list(build(setting, rank=1, world_size=2, loader=LoaderSection(workers=2)).iterate(25, 35))
    assert [step for step, _ in together] == list(range(25, 35))
    assert all(same_batches(found, wanted) for (_, found), (_, wanted) in zip(together, alone, strict=True))


def test_resuming_starts_at_its_step(setting):
    assert [step for step, _ in build(setting).iterate(44, 50)] == [44, 45, 46, 47, 48, 49]


def test_its_state_is_the_next_step_and_fits_any_other_loader(setting):
    first = build(setting)
    assert first.state_dict() == {"step": 0}
    stream = first.iterate()
    assert [next(stream)[0] for _ in range(3)] == [0, 1, 2]
    assert first.state_dict() == {"step": 3}
    stream.close()
    other = build(setting, rank=1, world_size=2)
    other.load_state_dict(first.state_dict())
    steps = other.iterate(stop_step=6)
    assert [step for step, _ in steps] == [3, 4, 5]
    assert other.state_dict() == {"step": 6}
    assert next(other.iterate())[0] == 6


def test_pairs_are_numbered_by_their_row_in_the_global_batch(setting):
    for step in (3, 33):
        numbers = Counter()
        for rank in range(3):
            for micro_step, batch in enumerate(build(setting, rank=rank, world_size=3).batch(step)):
                numbers.update(batch.pair_index[batch.pair_index >= 0].tolist())
                assert micro_step == 0 or (batch.pair_index == -1).all()
                paired = batch.pair_index >= 0
                assert torch.equal(batch.pair_index[paired] // PAIRS_PER_ROW, batch.row_id[paired])
        assert set(numbers.values()) == {2}
        rows = Counter(index // PAIRS_PER_ROW for index in numbers)
        assert sorted(numbers) == [row * PAIRS_PER_ROW + place for row in sorted(rows) for place in range(rows[row])]


def test_ranks_without_rows_get_empty_batches(setting):
    batches = build(setting, rank=63, world_size=64, micro_batch_tokens=64).batch(0)
    assert batches
    assert all(batch.tokens == 0 and batch.cu_seqlens.tolist() == [0] for batch in batches)


def test_every_row_of_an_epoch_is_seen_once(setting):
    """Count the rows and the segments of finished epochs: each exactly once, whatever batches the epoch's edges cut."""
    loader = build(setting, micro_batch_tokens=640, with_provenance=True)
    segments, rows_seen = {}, {}
    for step in range(30):
        rows = setting.plan.rows(step)
        (batch,) = loader.batch(step)
        for sources, number in zip(batch.provenance, batch.row_id.tolist(), strict=True):
            leaf = setting.plan.leaves[rows.leaf[number]]
            key = (leaf.objective, leaf.corpus, int(rows.epoch[number]))
            rows_seen.setdefault(key, set()).add(int(rows.row[number]))
            for source in sources:
                assert source.corpus == leaf.corpus
                segments.setdefault(key, Counter())[source] += 1
    finished = [key for key in segments if (*key[:2], key[2] + 1) in segments]
    assert len(finished) >= 3
    for objective, corpus, epoch in finished:
        layout = {"mlm": "documents", "tlm": "pairs", "contrastive": "separate_pairs"}[objective]
        entry = setting.shards.index.plan(corpus, layout, 32, epoch % 2)
        seen = segments[objective, corpus, epoch]
        assert set(seen.values()) == {1}
        assert rows_seen[objective, corpus, epoch] == set(range(entry.rows))
        assert len(seen) == entry.segments * (1 if objective == "mlm" else 2)


def test_a_pickled_loader_is_what_it_was_made_from(setting):
    loader = build(setting, rank=1, world_size=2)
    loader.batch(3)
    pickled = pickle.dumps(loader)
    assert len(pickled) < 100_000
    assert same_batches(pickle.loads(pickled).batch(3), loader.batch(3))


def test_an_error_while_building_reaches_the_trainer(setting, monkeypatch):
    loader = build(setting)
    build_rows = loader._builder.build

    def broken(rows, *arguments, **options):
        if rows.step == 2:
            raise OSError("the disk is gone")
        return build_rows(rows, *arguments, **options)

    monkeypatch.setattr(loader._builder, "build", broken)
    steps = loader.iterate(0, 5)
    assert [next(steps)[0], next(steps)[0]] == [0, 1]
    with pytest.raises(OSError, match="the disk is gone"):
        next(steps)


def test_batches_are_pinned_where_there_is_a_gpu(setting, monkeypatch):
    """Without a GPU nothing can be pinned: this shows that every tensor of every batch would be, once."""
    asked = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: asked.append(tensor) or tensor.clone())
    wanted = build(setting).batch(0)
    ((_, batches),) = build(setting).iterate(0, 1)
    assert same_batches(batches, wanted)
    assert len(asked) == len(batches) * 14


def test_a_rank_outside_the_world_is_refused(setting):
    with pytest.raises(ValueError, match="rank 2 of 2"):
        build(setting, rank=2, world_size=2)


def test_every_objective_over_ranks(shards, pieces, make_recipe):
    shares = {name: {"share": 1 / 7} for name in ("mlm", "tlm", "contrastive", "clm", "nsp", "sop", "rtd")}
    recipe = make_recipe([{"objectives": shares}], tokens_per_step=1600)
    plan = DataPlan(recipe, shards.index)

    def found(world_size):
        counted = Counter()
        for rank in range(world_size):
            loader = BatchLoader(plan, shards, pieces, 11, rank=rank, world_size=world_size, micro_batch_tokens=800)
            for batch in loader.batch(4):
                counted.update(sequences_of(batch))
        return counted

    whole = found(1)
    assert set(np.array([sequence[5] for sequence in whole])) == set(range(7))
    assert found(5) == whole
