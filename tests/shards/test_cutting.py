"""Cuts side by side against the definition, one document at a time."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from xlm.shards.cutting import Spans, cut, split


def brute_force(start, end, capacity, *kinds):
    """The definition, spelled out: the last place of the best kind that fits, else the row's end."""
    pieces = []
    while end - start > capacity:
        window = range(start + 1, start + capacity + 1)
        ends = next((found for kind in kinds if (found := [place for place in window if place in kind])), [start + capacity])
        pieces.append((start, ends[-1]))
        start = ends[-1]
    return [*pieces, (start, end)]


def spans_of(lengths):
    return Spans(np.arange(len(lengths)), np.zeros(len(lengths), dtype=np.int64), np.array(lengths, dtype=np.int64))


def listed(spans):
    return list(zip(spans.item.tolist(), spans.start.tolist(), spans.end.tolist(), strict=True))


texts = st.lists(st.integers(1, 60), min_size=1, max_size=6)
places = st.sets(st.integers(0, 360), max_size=60)


@settings(deadline=None)
@given(lengths=texts, capacity=st.integers(1, 30), better=places, worse=places)
def test_cuts_follow_the_definition(lengths, capacity, better, worse):
    offsets = np.cumsum([0, *lengths])
    found = cut(spans_of(lengths), capacity, offsets, *(np.array(sorted(kind), dtype=np.int64) for kind in (better, worse)))
    expected = []
    for item, (first, length) in enumerate(zip(offsets.tolist(), lengths, strict=False)):
        kinds = [{place - first for place in kind} for kind in (better, worse)]
        expected += [(item, *piece) for piece in brute_force(0, length, capacity, *kinds)]
    assert listed(found) == expected
    assert all(0 < end - start <= capacity for _, start, end in listed(found))


@settings(deadline=None)
@given(lengths=texts, points=places)
def test_splits_fall_at_every_place_inside(lengths, points):
    offsets = np.cumsum([0, *lengths])
    expected = []
    for item, (first, length) in enumerate(zip(offsets.tolist(), lengths, strict=False)):
        bounds = [0, *(place - first for place in sorted(points) if 0 < place - first < length), length]
        expected += [(item, *piece) for piece in pairwise(bounds)]
    assert listed(split(spans_of(lengths), offsets, np.array(sorted(points), dtype=np.int64))) == expected


def test_sentences_go_before_words():
    offsets, words = np.array([0, 10]), np.array([0, 2, 4, 6, 8])
    assert listed(cut(spans_of([10]), 6, offsets, np.array([0, 4]), words)) == [(0, 0, 4), (0, 4, 10)]
    assert listed(cut(spans_of([10]), 6, offsets, np.array([], dtype=np.int64), words)) == [(0, 0, 6), (0, 6, 10)]
    assert listed(cut(spans_of([10]), 6, offsets, np.array([0]), np.array([0]))) == [(0, 0, 6), (0, 6, 10)]
