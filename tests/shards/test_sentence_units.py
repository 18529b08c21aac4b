"""Units of two pieces: half of them exchanged, lengths that tell nothing, and every reason why one is not."""

import numpy as np
import pytest

from tests.shards.made_up_shards import WORD_FLAGS, made_up_shard
from xlm.seeding import keyed_generator
from xlm.shards.cutting import Spans
from xlm.shards.sentence_units import SHORT_SHARE, exchange, sentence_units

CAPACITY = 61


@pytest.fixture(scope="module")
def shard():
    generator = keyed_generator("units")
    ids, starts = [], []
    for _ in range(400):
        sentences = generator.integers(3, 25, size=int(generator.integers(1, 30)))
        ids.append(generator.integers(5, 25, size=int(sentences.sum())))
        starts.append(np.cumsum([0, *sentences])[:-1].tolist())
    return made_up_shard("monolingual", ids, sentence_starts=starts)


@pytest.fixture(scope="module")
def units(shard):
    return sentence_units(shard, WORD_FLAGS, CAPACITY, keyed_generator("draw"))


def test_units_are_divided_at_sentences(shard, units):
    first, second, alone = units
    assert alone == sum(len(each) < 2 for each in shard.batch.column("sentence_starts").to_pylist()) > 0
    assert (first.end == second.start).all()
    known, starts = shard.sentence_starts()
    assert known.all()
    # No sentence is longer than half of a unit here; one is cut only where a document would end in a single one.
    assert np.isin(shard.offsets[0][second.item] + second.start, starts).mean() > 0.98
    assert np.isin(shard.offsets[0][first.item] + first.start, starts).mean() > 0.98
    both = first.lengths + second.lengths
    assert both.max() <= CAPACITY
    assert np.mean(both > CAPACITY * 0.7) > 0.7
    assert np.mean(both < CAPACITY * 0.4) > SHORT_SHARE / 4


def test_half_of_the_next_sentences_come_from_elsewhere(units):
    first, second, _ = units
    exchanged, kept = exchange(first, second, CAPACITY, keyed_generator("exchange"))
    elsewhere = exchanged.item != first.item
    assert kept == 0
    assert abs(elsewhere.sum() - len(first) / 2) <= 1
    assert (first.lengths + exchanged.lengths <= CAPACITY).all()
    assert sorted(zip(exchanged.item, exchanged.start, exchanged.end, strict=True)) == sorted(
        zip(second.item, second.start, second.end, strict=True)
    )
    # The others are continuations still.
    assert (exchanged.start[~elsewhere] == first.end[~elsewhere]).all()


def test_lengths_do_not_tell_which(units):
    first, second, _ = units
    exchanged, _ = exchange(first, second, CAPACITY, keyed_generator("exchange"))
    elsewhere = exchanged.item != first.item
    for lengths in (first.lengths, exchanged.lengths, first.lengths + exchanged.lengths):
        deviation = lengths.std() * np.sqrt(4 / len(lengths))  # of the difference of two means of half of them
        assert abs(lengths[elsewhere].mean() - lengths[~elsewhere].mean()) < 4 * deviation


def test_units_that_nothing_fits_stay_and_are_counted():
    def spans(*columns):
        return Spans(*(np.array(column, dtype=np.int64) for column in columns))

    one_document = spans([0] * 8, range(0, 80, 10), range(5, 85, 10)), spans([0] * 8, range(5, 85, 10), range(10, 90, 10))
    kept, count = exchange(*one_document, 20, keyed_generator(0))
    assert count == 4
    assert (kept.start == one_document[1].start).all()
    # Each is full to the last token, and no two B are equally long.
    full = spans(range(8), [0] * 8, range(2, 10)), spans(range(8), range(2, 10), [20] * 8)
    kept, count = exchange(*full, 20, keyed_generator(0))
    assert count == 4
    assert (kept.item == full[1].item).all()


def test_three_sentences_too_long_for_one_unit_make_two():
    shard = made_up_shard("monolingual", [[5] * 30], sentence_starts=[[0, 10, 20]])
    first, second, alone = sentence_units(shard, WORD_FLAGS, 21, keyed_generator(0))
    assert alone == 0
    pieces = sorted(zip([*first.start, *second.start], [*first.end, *second.end], strict=True))
    assert len(pieces) == 4
    assert [start for start, _ in pieces] == [0, *(end for _, end in pieces[:-1])]
    assert pieces[-1][1] == 30
