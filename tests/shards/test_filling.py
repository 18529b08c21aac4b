"""Filling rows from texts that may be cut at some places only."""

import numpy as np
import pytest

from xlm.seeding import keyed_generator
from xlm.shards.filling import Filler


class CutEvery:
    """Texts that may be cut at every multiple of ``good``, and where rows stay too empty at every one of ``makeshift``."""

    def __init__(self, good, makeshift, longest):
        self.good, self.worse, self.longest = good, makeshift, longest

    def _lengths(self, step, start, end):
        return sum(1 << n for n in range(1, min(self.longest, end - start) + 1) if (start + n) % step == 0 or start + n == end)

    def lengths_of_runs(self, item, start, end):
        return self._lengths(self.good, start, end)

    def makeshift(self, item, start, end):
        return self._lengths(self.worse, start, end)


def fill(lengths, room, cost, runs, *, empty_share=0.004, **begun):
    filler = Filler(room, cost, runs, empty_share=empty_share)
    filler.fill(np.arange(len(lengths)), np.array(lengths), **begun)
    return list(zip(*(column.tolist() for column in filler.columns()), strict=True))


@pytest.mark.parametrize(("good", "makeshift"), [(1, 1), (7, 1), (13, 5)])
def test_texts_go_on_where_they_were_left(good, makeshift):
    lengths = keyed_generator("filling").integers(1, 200, size=150).tolist()
    runs = fill(lengths, 64, 2, CutEvery(good, makeshift, 62))
    reached = [0] * len(lengths)
    used = {}
    for row, item, start, end in sorted(runs, key=lambda run: (run[1], run[2])):
        assert start == reached[item] < end
        reached[item] = end
        used[row] = used.get(row, 0) + end - start + 2
    assert reached == lengths
    assert sorted(used) == list(range(len(used)))
    assert max(used.values()) <= 64
    # A text is in a row once, however many runs it gave.
    assert len({(row, item) for row, item, _, _ in runs}) == len(runs)


def test_makeshift_cuts_are_made_only_where_rows_stay_too_empty():
    lengths = [1000] * 40
    for empty_share, cut_elsewhere in ((0.004, True), (0.3, False)):
        runs = fill(lengths, 64, 2, CutEvery(50, 1, 62), empty_share=empty_share)
        assert any(start % 50 for _, _, start, _ in runs) == cut_elsewhere
        rows = 1 + max(row for row, *_ in runs)
        used = sum(end - start + 2 for _, _, start, end in runs)
        assert used / (rows * 64) > (0.99 if cut_elsewhere else 0.7)


def test_a_text_without_good_cuts_is_cut_all_the_same():
    assert fill([100], 32, 2, CutEvery(1000, 10, 30)) == [(0, 0, 0, 30), (1, 0, 30, 60), (2, 0, 60, 90), (3, 0, 90, 100)]


def test_rows_begun_before_are_filled_first():
    runs = fill([40, 40], 32, 2, CutEvery(1, 1, 30), begun=[(3, 12), (5, 22)], rows=7)
    assert [(row, end - start) for row, _, start, end in runs[:2]] == [(3, 10), (5, 20)]
    assert min(row for row, *_ in runs[2:]) == 7
    assert sum(end - start for _, _, start, end in runs) == 80


def test_rows_begun_before_stay_as_they_are_without_texts():
    assert fill([], 32, 2, CutEvery(1, 1, 30), begun=[(0, 12)], rows=1) == []
