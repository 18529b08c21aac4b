"""Promise 1 where it meets the trainer: the global batch is the same however it is computed."""

from collections import Counter
from itertools import pairwise

import pytest
import torch

from xlm.batching.loader import BatchLoader

SEQUENCE_FIELDS = ("sequence_objective", "pair_key", "pair_index", "row_id")
TOKEN_FIELDS = ("input_ids", "position_ids", "token_type_ids", "language_ids")


def build(setting, **changes):
    given = {"rank": 0, "world_size": 1, "micro_batch_tokens": 320, **changes}
    return BatchLoader(setting.plan, setting.shards, setting.pieces, setting.seed, **given)


def sequences_of(batch):
    """Return every sequence of a batch as plain values: tokens, what is predicted in it, and its numbers."""
    bounds = batch.cu_seqlens.tolist()
    predictions = list(zip(batch.predict_positions.tolist(), batch.labels.tolist(), batch.prediction_objective.tolist(), strict=True))
    for number, (start, end) in enumerate(pairwise(bounds)):
        tokens = tuple(tuple(getattr(batch, name)[start:end].tolist()) for name in TOKEN_FIELDS)
        inside = tuple((position - start, label, code) for position, label, code in predictions if start <= position < end)
        yield (*tokens, inside, *(int(getattr(batch, name)[number]) for name in SEQUENCE_FIELDS))


def global_batch(setting, step, world_size, micro_batch_tokens):
    found = Counter()
    for rank in range(world_size):
        loader = build(setting, rank=rank, world_size=world_size, micro_batch_tokens=micro_batch_tokens)
        batches = loader.batch(step)
        assert len(batches) == loader.micro_steps
        for batch in batches:
            found.update(sequences_of(batch))
    return found


@pytest.mark.parametrize("step", [0, 7, 29, 30, 49])
def test_a_global_batch_does_not_depend_on_ranks_or_micro_batches(setting, step):
    whole = global_batch(setting, step, 1, 640)
    assert sum(whole.values()) > 30
    for world_size, micro_batch_tokens in ((1, 288), (2, 320), (2, 160), (4, 160), (4, 10_000), (16, 64), (64, 1)):
        assert global_batch(setting, step, world_size, micro_batch_tokens) == whole


def test_a_batch_asked_for_directly_is_the_one_in_turn(setting):
    in_turn = dict(build(setting).iterate(0, setting.plan.total_steps))
    assert sorted(in_turn) == list(range(setting.plan.total_steps))
    for step in (41, 2, 30, 29):
        for direct, found in zip(build(setting).batch(step), in_turn[step], strict=True):
            for name, tensor in vars(direct).items():
                assert torch.equal(tensor, getattr(found, name)) if name != "provenance" else found.provenance == ()


def test_resuming_starts_at_its_step(setting):
    assert [step for step, _ in build(setting).iterate(44, 50)] == [44, 45, 46, 47, 48, 49]


def test_pairs_are_numbered_over_the_global_batch(setting):
    for step in (3, 33):
        numbers = Counter()
        for rank in range(3):
            for micro_step, batch in enumerate(build(setting, rank=rank, world_size=3).batch(step)):
                numbers.update(batch.pair_index[batch.pair_index >= 0].tolist())
                assert micro_step == 0 or (batch.pair_index == -1).all()
        assert numbers == Counter(dict.fromkeys(range(len(numbers)), 2))
        # Numbers follow the order of rows, so that row order and pair order are one.
        whole = build(setting, micro_batch_tokens=640).batch(step)[0]
        ordered = sorted((row, index) for row, index in zip(whole.row_id.tolist(), whole.pair_index.tolist(), strict=True) if index >= 0)
        assert [index for _, index in ordered] == sorted(index for _, index in ordered)


def test_ranks_without_rows_get_empty_batches(setting):
    batches = build(setting, rank=63, world_size=64, micro_batch_tokens=64).batch(0)
    assert batches
    assert all(batch.tokens == 0 and batch.cu_seqlens.tolist() == [0] for batch in batches)


def test_every_row_of_an_epoch_is_seen_once(setting):
    """Count the sequences of finished epochs by where they came from: each segment as often as its epochs."""
    loader = build(setting, micro_batch_tokens=640, with_provenance=True)
    epochs = {}
    for step in range(30):
        rows = setting.plan.rows(step)
        (batch,) = loader.batch(step)
        for source, row in zip(batch.provenance, batch.row_id.tolist(), strict=True):
            ref = rows[row]
            epochs.setdefault((ref.corpus, ref.objective, ref.epoch), Counter())[source] += 1
    finished = [key for key in epochs if (key[0], key[1], key[2] + 1) in epochs]
    assert len(finished) >= 3
    for corpus, objective, epoch in finished:
        seen = epochs[corpus, objective, epoch]
        assert set(seen.values()) == {1}
        plan = setting.shards.plan(corpus, objective, 32, epoch % 2)
        assert len(seen) == len(plan.segments) * (2 if objective == "contrastive" else 1)


def test_an_error_while_building_reaches_the_trainer(setting, monkeypatch):
    loader = build(setting)
    build_rows = loader._builder.build

    def broken(refs, **options):
        if any(ref.objective == "tlm" for ref in refs):
            raise OSError("the disk is gone")
        return build_rows(refs, **options)

    monkeypatch.setattr(loader._builder, "build", broken)
    with pytest.raises(OSError, match="the disk is gone"):
        list(loader.iterate(0, 3))


def test_a_rank_outside_the_world_is_refused(setting):
    with pytest.raises(ValueError, match="rank 2 of 2"):
        build(setting, rank=2, world_size=2)
