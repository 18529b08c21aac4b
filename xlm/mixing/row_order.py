"""Which row stands at a place of an epoch: every row exactly once, in an order that no other epoch has.

Without a window, or where a corpus has no more blocks (token shards) than a window, the place goes
through the epoch's bijection of all rows. With a window of W blocks the order has two levels, so that
few shards are in use at a time: the epoch's bijection of the blocks puts them in order, W consecutive ones are
a window, and the places of a window go through a bijection of the window's rows. A window is finished
before the next one begins, so a corpus draws from at most W shards at a time, 2 W in a batch that
crosses an edge (more only where a batch takes more rows than a window has). What is kept is the order of
the blocks of an epoch, never of rows, and that only for the two epochs of a corpus asked about last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xlm.mixing.batch_rows import Column
from xlm.mixing.bijection import derived, permute
from xlm.mixing.row_cycle import Places

_KEPT_EPOCHS = 2


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The blocks [B] of one row plan that have rows: how many, and the number of the first."""

    rows: NDArray[np.int64]
    first_row: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _BlockOrder:
    """The order of the blocks in one epoch."""

    epoch: int
    starts: NDArray[np.int64]  # [B], places before each block, in the epoch's order
    shift: NDArray[np.int64]  # [B], from a place in the block to the number of its row
    window_starts: NDArray[np.int64]  # [W + 1], places before each window; the last is all places


class RowOrders:
    """The orders of all epochs of the leaves of one phase."""

    def __init__(
        self, bases: Sequence[int], block_rows: Mapping[tuple[int, int], Sequence[int]], *, variants: int, window: int | None
    ) -> None:
        """``bases`` [leaves] are the leaves' keys; ``block_rows`` holds by (leaf, variant) the rows of every block of its plan."""
        self._bases = np.array(bases, dtype=np.uint64)
        self._window = window
        self._blocks: dict[tuple[int, int], _Blocks] = {}
        self._orders: dict[int, tuple[_BlockOrder, ...]] = {}  # by leaf, the one asked about last first
        self._in_windows = np.zeros((len(bases), variants), dtype=np.bool_)
        for (leaf, variant), counts in block_rows.items():
            rows = np.array(counts, dtype=np.int64)
            (filled,) = np.nonzero(rows)
            if window is not None and len(filled) > window:
                self._blocks[leaf, variant] = _Blocks(rows[filled], (np.cumsum(rows) - rows)[filled])
                self._in_windows[leaf, variant] = True

    def rows(self, leaf: Column, places: Places) -> Column:
        """Return the number of the row that stands at each place [m] of the epochs of ``leaf`` [m].

        Places of one leaf and epoch must follow each other.
        """
        keys = derived(self._bases[leaf], places.epoch.astype(np.uint64))
        (inside,) = np.nonzero(self._in_windows[leaf, places.variant])
        if not inside.size:
            return permute(places.place, places.size, keys)
        place, size, first = places.place.copy(), places.size.copy(), np.zeros_like(places.place)
        runs = self._runs(inside, leaf, places)
        for run, order in runs:
            window = np.searchsorted(order.window_starts, place[run], side="right") - 1
            first[run] = order.window_starts[window]
            size[run] = order.window_starts[window + 1] - first[run]
            place[run] -= first[run]
            keys[run] = derived(keys[run], window.astype(np.uint64) + np.uint64(1))
        rows = permute(place, size, keys)
        for run, order in runs:
            position = first[run] + rows[run]
            rows[run] = position + order.shift[np.searchsorted(order.starts, position, side="right") - 1]
        return rows

    def _runs(self, inside: Column, leaf: Column, places: Places) -> list[tuple[slice, _BlockOrder]]:
        """Return the stretches of one leaf and epoch among the rows ``inside`` windows, with the order of their blocks."""
        new = np.ones(len(inside), dtype=np.bool_)
        new[1:] = (np.diff(inside) != 1) | (np.diff(leaf[inside]) != 0) | (np.diff(places.epoch[inside]) != 0)
        (edges,) = np.nonzero(new)
        stops = np.append(edges[1:], len(inside)) - 1
        runs: list[tuple[slice, _BlockOrder]] = []
        for start, stop in zip(inside[edges].tolist(), (inside[stops] + 1).tolist(), strict=True):
            order = self._block_order(int(leaf[start]), int(places.variant[start]), int(places.epoch[start]))
            runs.append((slice(start, stop), order))
        return runs

    def _block_order(self, leaf: int, variant: int, epoch: int) -> _BlockOrder:
        kept = self._orders.get(leaf, ())
        for order in kept:
            if order.epoch == epoch:
                return order
        blocks = self._blocks[leaf, variant]
        number = np.arange(len(blocks.rows), dtype=np.int64)
        # Key 0 of the epoch's keys; windows take those from 1.
        key = derived(derived(self._bases[leaf : leaf + 1], np.array([epoch], dtype=np.uint64)), np.zeros(1, dtype=np.uint64))
        shuffled = permute(number, np.full_like(number, len(number)), np.broadcast_to(key, number.shape))
        rows = blocks.rows[shuffled]
        starts = np.cumsum(rows) - rows
        order = _BlockOrder(epoch, starts, blocks.first_row[shuffled] - starts, np.append(starts[:: self._window], rows.sum()))
        # One assignment, so that threads that ask at the same time do no harm.
        self._orders[leaf] = (order, *kept)[:_KEPT_EPOCHS]
        return order
