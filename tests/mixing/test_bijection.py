from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from xlm.mixing.bijection import MAXIMUM_SIZE, derived, permute
from xlm.seeding import key_int64


def images(index, size, *key):
    index = np.asarray(index, dtype=np.int64)
    return permute(index, np.full(index.shape, size), np.full(index.shape, key_int64(*key), dtype=np.uint64))


def seeds_of(keys):
    return np.array([key_int64("k", key) for key in range(keys)], dtype=np.uint64)


@given(size=st.integers(1, 5000), seed=st.integers(0, 2**63 - 1))
@settings(max_examples=150, deadline=None)
def test_it_is_a_permutation_for_every_size(size, seed):
    assert np.array_equal(np.sort(images(np.arange(size), size, seed)), np.arange(size))


@pytest.mark.parametrize("size", [*range(1, 70), 127, 128, 129, 65535, 65536, 65537, 1_000_003])
def test_it_is_a_permutation_at_edges(size):
    image = images(np.arange(size), size, "rows", 3)
    assert np.array_equal(np.bincount(image, minlength=size), np.ones(size))


@pytest.mark.parametrize("size", [2**40 + 7, 2**53 + 1, 2**60, 2**62 - 1, MAXIMUM_SIZE])
def test_huge_ranges_stay_inside_and_injective(size):
    index = np.unique(np.random.default_rng(0).integers(0, size, 20_000))
    image = images(index, size, 1)
    assert image.min() >= 0
    assert image.max() < size
    assert np.unique(image).size == index.size
    # Uniform over the range: 20,000 draws into 16 parts.
    assert stats.chisquare(np.bincount(image // -(-size // 16), minlength=16)).pvalue > 1e-5


@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_mixed_sizes_and_keys_agree_with_one_at_a_time(data):
    sizes = data.draw(st.lists(st.integers(1, 10**6), min_size=1, max_size=20))
    index = [data.draw(st.integers(0, size - 1)) for size in sizes]
    together = permute(np.array(index), np.array(sizes), seeds_of(len(sizes)))
    assert together.tolist() == [int(images([one], size, "k", key)[0]) for key, (one, size) in enumerate(zip(index, sizes, strict=True))]


def test_epochs_differ():
    size = 1000
    orders = [images(np.arange(size), size, 7, "en", epoch) for epoch in range(20)]
    for first in range(20):
        for second in range(first):
            # Two independent permutations agree in one place on average; 12 or more has p < 1e-9.
            assert (orders[first] == orders[second]).sum() < 12


@pytest.mark.parametrize("size", [3, 5, 7, 11, 24, 100])
def test_each_place_is_uniform_over_keys(size):
    keys = 6000
    index = np.zeros(keys, dtype=np.int64)
    for place in (0, size // 2, size - 1):
        image = permute(index + place, index + size, seeds_of(keys))
        # 18 tests in all: a level of 1e-5 each gives a false alarm in 5,000 runs, and the keys are fixed.
        assert stats.chisquare(np.bincount(image, minlength=size)).pvalue > 1e-5


@pytest.mark.parametrize("size", [6, 9, 12, 30])
def test_every_two_places_are_uniform_over_keys(size):
    keys = 10_000
    index = np.zeros(keys, dtype=np.int64)
    image = np.stack([permute(index + place, index + size, seeds_of(keys)) for place in range(size)])
    for first, second in ((0, 1), (0, size - 1), (size // 2, size // 2 + 1)):
        counts = np.bincount(image[first] * size + image[second], minlength=size * size)
        assert not counts[:: size + 1].any()
        assert stats.chisquare(counts[counts > 0]).pvalue > 1e-5
        assert (counts > 0).sum() == size * (size - 1)


def test_small_permutations_are_all_reached_about_equally():
    keys = 12_000
    seeds = seeds_of(keys)
    index = np.zeros(keys, dtype=np.int64)
    image = np.stack([permute(index + place, index + 4, seeds) for place in range(4)])
    _, counts = np.unique(np.array([64, 16, 4, 1]) @ image, return_counts=True)
    assert counts.size == 24
    assert stats.chisquare(counts).pvalue > 1e-5


def test_neighbours_do_not_stay_neighbours():
    size = 100_000
    image = images(np.arange(size), size, 5).astype(float)
    # Correlation of an independent order has standard deviation 1/sqrt(n); five of them.
    assert abs(np.corrcoef(image[:-1], image[1:])[0, 1]) < 5 / np.sqrt(size)
    assert abs(np.corrcoef(np.arange(size), image)[0, 1]) < 5 / np.sqrt(size)
    # The differences of neighbours are all different ones, unlike those of a linear map.
    assert np.unique(np.diff(image)).size > size // 2


def test_neighbouring_keys_give_unrelated_orders():
    size, keys = 1000, 50
    base = np.full(keys, 12345, dtype=np.uint64)
    seeds = derived(base, np.arange(keys, dtype=np.uint64))
    orders = [permute(np.arange(size), np.full(size, size), np.full(size, seed)) for seed in seeds]
    together = [(a == b).sum() for a, b in pairwise(orders)]
    assert max(together) < 12


def test_the_order_is_fixed_for_good():
    # A change here changes the data order of every run that is to be resumed.
    assert images(np.arange(10), 10, "golden").tolist() == [0, 8, 2, 3, 9, 4, 5, 6, 7, 1]


def test_an_index_outside_is_refused():
    with pytest.raises(ValueError, match="outside"):
        images([10], 10, 1)
