from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xlm.mixing.row_cycle import RowCycles
from xlm.mixing.row_order import RowOrders
from xlm.seeding import key_int64


def orders_of(blocks, window, *, seed=0):
    """Orders of leaves with these rows of blocks: [leaves][variants][blocks]."""
    bases = [key_int64("row order", seed, leaf) for leaf in range(len(blocks))]
    block_rows = {(leaf, variant): rows for leaf, of_leaf in enumerate(blocks) for variant, rows in enumerate(of_leaf)}
    return RowOrders(bases, block_rows, variants=len(blocks[0]), window=window)


def drawn(blocks, window, numbers, *, leaf=0, seed=0):
    """Return (epochs, rows) of a leaf's rows with these numbers."""
    number = np.array(numbers, dtype=np.int64)
    leaves = np.full(number.shape, leaf)
    places = RowCycles([[sum(rows) for rows in of_leaf] for of_leaf in blocks]).locate(leaves, number)
    return places.epoch, orders_of(blocks, window, seed=seed).rows(leaves, places)


def block_of(rows, row):
    return int(np.searchsorted(np.cumsum(rows), row, side="right"))


block_lists = st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any)


@given(blocks=block_lists, window=st.one_of(st.none(), st.integers(1, 13)), seed=st.integers(0, 99))
@settings(max_examples=150, deadline=None)
def test_every_row_stands_once_in_every_epoch(blocks, window, seed):
    total = sum(blocks)
    epochs, rows = drawn([[blocks]], window, range(4 * total), seed=seed)
    for epoch in range(4):
        assert sorted(rows[epochs == epoch].tolist()) == list(range(total))


@given(blocks=block_lists, window=st.integers(1, 13))
@settings(max_examples=100, deadline=None)
def test_a_window_is_finished_before_the_next_begins(blocks, window):
    total = sum(blocks)
    _, rows = drawn([[blocks]], window, range(total))
    seen = [block_of(blocks, row) for row in rows.tolist()]
    filled = [block for block, count in enumerate(blocks) if count]
    if len(filled) <= window:
        return
    order = list(dict.fromkeys(seen))
    left = dict.fromkeys(filled, 0) | {block: blocks[block] for block in filled}
    open_blocks = set()
    for block in seen:
        open_blocks.add(block)
        left[block] -= 1
        if all(left[other] == 0 for other in open_blocks) and len(open_blocks) == window:
            open_blocks = set()
        assert len(open_blocks) <= window
    assert sorted(order) == filled


def test_no_two_epochs_are_alike():
    blocks = [5, 0, 7, 1, 6, 6, 3, 8]
    for window in (None, 1, 3, 8):
        epochs, rows = drawn([[blocks]], window, range(36 * 40))
        assert len({tuple(rows[epochs == epoch]) for epoch in range(40)}) == 40
        # Blocks change their order and not only rows theirs: the first block of the epochs is any of them.
        assert len({block_of(blocks, row) for row in rows[::36].tolist()}) >= 6


def test_blocks_of_a_window_are_mixed():
    blocks = [100] * 16
    _, rows = drawn([[blocks]], 4, range(400))
    seen = [block_of(blocks, row) for row in rows.tolist()]
    assert len(set(seen)) == 4
    changes = sum(a != b for a, b in pairwise(seen))
    assert changes > 250  # 300 in expectation, standard deviation below 10


@pytest.mark.parametrize("window", [None, 1, 2, 5])
def test_all_leaves_at_once_are_each_for_itself(window):
    blocks = [[[3, 4, 0, 5], [6, 6]], [[2], [1, 1, 1]], [[9, 1, 9, 9, 9], [0, 1, 1, 0]]]
    asked = np.sort(np.random.default_rng(0).integers(0, 60, (3, 25)), axis=1)
    together = np.repeat(np.arange(3), 25)
    cycles = RowCycles([[sum(rows) for rows in of_leaf] for of_leaf in blocks])
    rows = orders_of(blocks, window).rows(together, cycles.locate(together, asked.ravel()))
    alone = [drawn(blocks, window, asked[leaf], leaf=leaf)[1] for leaf in range(3)]
    assert np.array_equal(rows, np.concatenate(alone))


def test_a_window_of_all_blocks_is_the_order_without_one():
    blocks = [[[3, 4, 5]]]
    assert np.array_equal(drawn(blocks, 3, range(36))[1], drawn(blocks, None, range(36))[1])
    assert not np.array_equal(drawn(blocks, 2, range(36))[1], drawn(blocks, None, range(36))[1])


def test_what_is_kept_does_not_grow_with_epochs():
    blocks = [[[3] * 50]]
    orders, cycles = orders_of(blocks, 4), RowCycles([[150]])
    leaf = np.zeros(150, dtype=np.int64)
    for epoch in range(20):
        orders.rows(leaf, cycles.locate(leaf, np.arange(150) + 150 * epoch))
    assert len(orders._orders[0]) == 2


def test_a_place_costs_the_blocks_not_the_rows():
    # A million million rows: any list of them would not fit.
    _, rows = drawn([[[10**9] * 1000]], 4, [0, 10**11, 10**12 - 1, 10**12, 10**15 + 7])
    assert len(set(rows.tolist())) == 5
    assert rows.max() < 10**12
