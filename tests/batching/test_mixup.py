"""Joined pairs: against a walk through every row, and how often they come."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from xlm.batching.loader import BatchLoader
from xlm.batching.mixup import units
from xlm.batching.packed_batch import PAIRS_PER_ROW
from xlm.batching.rendering import lines, show
from xlm.mixing.data_plan import DataPlan

WORD = 1 << 64
GAMMA = 0x9E3779B97F4A7C15


def word(seed, counter):
    """Word of stream 4 of a row's seed, in whole numbers (SplitMix64)."""
    value = (seed + GAMMA * ((4 << 32) + counter + 1)) % WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) % WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) % WORD
    return value ^ (value >> 31)


def walked(seeds, pairs_per_row, probability):
    found, per_row, before = [], [], 0
    for seed, count in zip(seeds, pairs_per_row, strict=True):
        place, own = 0, 0
        while place < count:
            drawn = word(seed, place)
            own += 1
            if place + 1 < count and (drawn >> 11) / 2**53 < probability:
                two = [before + place, before + place + 1]
                found.append(two[::-1] if drawn % 2 else two)
                place += 2
            else:
                found.append([before + place, -1])
                place += 1
        per_row.append(own)
        before += count
    return found, per_row


@given(
    rows=st.lists(st.tuples(st.integers(0, WORD - 1), st.integers(0, 9)), min_size=1, max_size=6),
    probability=st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]),
)
@settings(max_examples=200, deadline=None)
def test_rows_are_walked_through_pair_by_pair(rows, probability):
    seeds, counts = zip(*rows, strict=True)
    pairs, per_row = units(np.array(seeds, dtype=np.uint64), np.array(counts, dtype=np.int64), probability)
    assert (pairs.tolist(), per_row.tolist()) == walked(seeds, counts, probability)


def test_how_often_pairs_are_joined_and_turned():
    """Each pair that is not taken decides alone: of n pairs, p / (1 + p) x n joined units in a long row."""
    seeds = np.arange(400, dtype=np.uint64) * np.uint64(GAMMA)
    pairs, _ = units(seeds, np.full(400, 100), 0.5)
    joined = pairs[(pairs >= 0).all(axis=1)]
    assert abs(len(joined) - 400 * 100 / 3) < 5 * np.sqrt(400 * 100 / 3)
    assert abs((joined[:, 0] > joined[:, 1]).mean() - 0.5) < 2.5 / np.sqrt(len(joined))


def global_batch(plan, shards, pieces, world_size, step):
    """The contrastive sequences of a step, by pair index: [(row, key, languages, ids)] of both sides."""
    found = {}
    for rank in range(world_size):
        loader = BatchLoader(plan, shards, pieces, 11, rank=rank, world_size=world_size, micro_batch_tokens=640)
        for batch in loader.batch(step):
            for number in torch.nonzero(batch.pair_index >= 0).squeeze(1).tolist():
                first, last = batch.cu_seqlens[number : number + 2].tolist()
                side = (
                    int(batch.row_id[number]),
                    int(batch.pair_key[number]),
                    set(batch.language_ids[first:last].tolist()),
                    batch.input_ids[first:last].tolist(),
                )
                assert batch.position_ids[first:last].tolist() == list(range(last - first))
                found.setdefault(int(batch.pair_index[number]), []).append(side)
    return found


@pytest.mark.parametrize("step", [0, 3])
def test_rows_hold_the_same_text_joined_or_not_whoever_builds_them(make_recipe, shards, pieces, step):
    batches = []
    for mixup, world_size in ((0.0, 1), (0.7, 1), (0.7, 2), (0.7, 3)):
        objectives = {"contrastive": {"share": 0.6, "mixup": mixup}, "mlm": {"share": 0.4}}
        plan = DataPlan(make_recipe([{"objectives": objectives}]), shards.index)
        batches.append(global_batch(plan, shards, pieces, world_size, step))
    plain, joined, *dealt = batches
    assert dealt == [joined, joined]
    assert len(joined) < len(plain)
    for batch in (plain, joined):
        assert all(len(sides) == 2 and sides[0][:2] == sides[1][:2] for sides in batch.values())
        assert all(len(languages) == 1 for sides in batch.values() for _, _, languages, _ in sides)
        places = {}
        for index, ((row, *_), _) in batch.items():
            places.setdefault(row, []).append(index - row * PAIRS_PER_ROW)
        assert all(sorted(of_row) == list(range(len(of_row))) for of_row in places.values())
    text = [Counter() for _ in range(2)]
    for counted, batch in zip(text, (plain, joined), strict=True):
        for sides in batch.values():
            for number, (row, _, _, ids) in enumerate(sides):
                assert (ids[0], ids[-1]) == (2, 3)
                counted.update((row, number, piece) for piece in ids[1:-1])
    assert text[0] == text[1]
    lengths = Counter()
    for (row, _, _, source), (*_, target) in joined.values():
        lengths[row] += len(source) + len(target)
    assert max(lengths.values()) <= 32


def test_what_was_joined_is_printed_with_both_sources(make_recipe, shards, pieces):
    objectives = {"contrastive": {"share": 1.0, "mixup": 1.0}}
    plan = DataPlan(make_recipe([{"objectives": objectives}], micro_batch_tokens=640), shards.index)
    loader = BatchLoader(plan, shards, pieces, 11, rank=0, world_size=1, micro_batch_tokens=640, with_provenance=True)

    class Words:
        pieces = tuple(f"p{piece}" for piece in range(300))

        def decode(self, ids):
            return " ".join(self.pieces[piece] for piece in ids if piece > 4)

    shown = [sequence for batch in loader.batch(0) for sequence in show(batch, Words(), plan.languages)]
    joined = [sequence for sequence in shown if len(sequence.sources) == 2]
    assert len(joined) > len(shown) / 2
    for sequence in joined:
        assert len({source.corpus for source in sequence.sources}) == 1
        assert sum(source.end - source.start for source in sequence.sources) == len(sequence.tokens) - 2
        assert sum(line.startswith("  from ") for line in lines(sequence)) == 2
