"""Packing whole units into rows, in decreasing order or in about the order given.

Where rows must be alike, they are filled one after the other in a random order, and only the last units of a
row are looked for among those to come. Best fit in decreasing order is the classical offline heuristic (Johnson
1974): each unit goes into the fullest row that still has room for it. It fills better where units are long against a
row, but puts the longest together in the first rows and only the shortest in the last: a contrastive row's
negatives could be told apart by length alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

# Units to come that the end of a row is chosen from, and how many are tried as the last but one.
AHEAD, TRIES = 256, 8
# No row is left emptier than this part of it while a fuller end can be found, however full the others are.
MOST_EMPTY = 0.03


def best_fit(costs: Numbers, capacity: int) -> Numbers:
    """Return the row [units] of each unit, taken in the order of ``costs`` [units], each in 1..capacity.

    Rows are numbered in the order they are opened. Time is O(units x capacity / word size): the rooms
    left that some row has are bits of one integer, and the smallest that suffices is its lowest set bit
    from ``cost`` up.
    """
    rows_with_room: list[list[int]] = [[] for _ in range(capacity + 1)]
    rooms = 0
    rows = 0
    placed: list[int] = []
    for cost in costs.tolist():
        fitting = rooms >> cost
        if fitting:
            room = cost + (fitting & -fitting).bit_length() - 1
            candidates = rows_with_room[room]
            row = candidates.pop()
            if not candidates:
                rooms ^= 1 << room
        else:
            room, row = capacity, rows
            rows += 1
        left = room - cost
        if left:
            rows_with_room[left].append(row)
            rooms |= 1 << left
        placed.append(row)
    return np.array(placed, dtype=np.int64)


def fill_in_order(costs: Numbers, capacity: int, *, empty_share: float) -> Numbers:
    """Return the row [units] of units of these ``costs`` [units], each in 1..capacity; rows stay alike if the order is random.

    A row takes the next units until an average one might be its last; then one or two that leave as little as
    possible empty, or little enough while no more than ``empty_share`` of all rows is empty.
    """
    return _InOrder(costs.tolist(), capacity, empty_share).rows()


class _InOrder:
    """The units that wait, by cost; the costs that some unit has are bits of one integer."""

    def __init__(self, costs: list[int], capacity: int, empty_share: float) -> None:
        self._costs, self._capacity, self._empty_share = costs, capacity, empty_share
        self._row_of = [-1] * len(costs)
        self._units: list[list[int]] = [[] for _ in range(capacity + 1)]  # may name units that are placed by now
        self._counts = [0] * (capacity + 1)
        self._present = self._waiting = self._seen = 0

    def rows(self) -> Numbers:
        """Fill row after row."""
        costs, row_of = self._costs, self._row_of
        average = sum(costs) / max(1, len(costs))
        row = first = empty = 0
        while True:
            self._see_more()
            while first < self._seen and row_of[first] >= 0:
                first += 1
            if first == len(costs):
                return np.array(row_of, dtype=np.int64)
            self._place(first, row)
            left = self._capacity - costs[first]
            unit = first + 1
            while unit < self._seen and (row_of[unit] >= 0 or left - costs[unit] >= average):
                if row_of[unit] < 0:
                    self._place(unit, row)
                    left -= costs[unit]
                unit += 1
            budget = self._empty_share * self._capacity * (row + 1) - empty
            enough = max(0.0, min(budget, MOST_EMPTY * self._capacity))
            while left and (found := self._best_end(left, enough, unit)):
                for cost in found:
                    self._place(self._one_of(cost), row)
                    left -= cost
            empty += left
            row += 1

    def _see_more(self) -> None:
        while self._waiting < AHEAD and self._seen < len(self._costs):
            cost = self._costs[self._seen]
            self._units[cost].append(self._seen)
            self._counts[cost] += 1
            self._present |= 1 << cost
            self._seen += 1
            self._waiting += 1

    def _best_end(self, left: int, enough: float, unit: int) -> tuple[int, ...]:
        """Return the costs of one or two waiting units that leave least of ``left`` empty, the first of two from ``unit`` on."""
        longest = self._longest(left)
        if not longest:
            return ()
        best: tuple[int, ...] = (longest,)
        least = left - longest
        tries = TRIES
        while least > enough and tries and unit < self._seen:
            cost = self._costs[unit]
            if self._row_of[unit] < 0 and cost < left:
                tries -= 1
                last = self._longest(left - cost, besides=cost)
                if last and left - cost - last < least:
                    best, least = (cost, last), left - cost - last
            unit += 1
        return best

    def _longest(self, room: int, besides: int = 0) -> int:
        """Return the highest cost up to ``room`` of a waiting unit other than one of cost ``besides``; 0 for none."""
        fitting = self._present & ((2 << room) - 1)
        if self._counts[besides] == 1:
            fitting &= ~(1 << besides)
        return max(0, fitting.bit_length() - 1)

    def _one_of(self, cost: int) -> int:
        units = self._units[cost]
        while self._row_of[units[-1]] >= 0:
            units.pop()
        return units[-1]

    def _place(self, unit: int, row: int) -> None:
        cost = self._costs[unit]
        self._row_of[unit] = row
        self._counts[cost] -= 1
        self._waiting -= 1
        if not self._counts[cost]:
            self._present &= ~(1 << cost)
