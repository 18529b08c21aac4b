import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from xlm.mixing.bijection import MAXIMUM_SIZE, KeyedBijection, permute


@given(size=st.integers(1, 5000), seed=st.integers(0, 2**63 - 1))
@settings(max_examples=150, deadline=None)
def test_it_is_a_permutation_for_every_size(size, seed):
    image = KeyedBijection(size, seed).many(np.arange(size))
    assert np.array_equal(np.sort(image), np.arange(size))


@pytest.mark.parametrize("size", [*range(1, 70), 127, 128, 129, 65535, 65536, 65537, 1_000_003])
def test_it_is_a_permutation_at_edges(size):
    image = KeyedBijection(size, "rows", 3).many(np.arange(size))
    assert np.array_equal(np.bincount(image, minlength=size), np.ones(size))


@pytest.mark.parametrize("size", [2**40 + 7, 2**53 + 1, 2**60, MAXIMUM_SIZE])
def test_huge_ranges_stay_inside_and_injective(size):
    index = np.unique(np.random.default_rng(0).integers(0, size, 20_000))
    image = KeyedBijection(size, 1).many(index)
    assert image.min() >= 0
    assert image.max() < size
    assert np.unique(image).size == index.size


@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_mixed_sizes_and_keys_agree_with_one_at_a_time(data):
    sizes = data.draw(st.lists(st.integers(1, 10**6), min_size=1, max_size=20))
    index = [data.draw(st.integers(0, size - 1)) for size in sizes]
    bijections = [KeyedBijection(size, "corpus", number) for number, size in enumerate(sizes)]
    together = permute(np.array(index), np.array(sizes), np.array([bijection.seed for bijection in bijections]))
    assert together.tolist() == [bijection(one) for bijection, one in zip(bijections, index, strict=True)]


def test_epochs_differ():
    size = 1000
    orders = [KeyedBijection(size, 7, "en", epoch).many(np.arange(size)) for epoch in range(20)]
    for first in range(20):
        for second in range(first):
            # Two independent permutations agree in one place on average; 12 or more has p < 1e-9.
            assert (orders[first] == orders[second]).sum() < 12


@pytest.mark.parametrize("size", [3, 5, 7, 11, 24, 100])
def test_each_place_is_uniform_over_keys(size):
    keys = 6000
    index = np.zeros(keys, dtype=np.int64)
    for place in (0, size // 2, size - 1):
        seeds = np.array([KeyedBijection(size, "k", key).seed for key in range(keys)])
        image = permute(index + place, index + size, seeds)
        # 18 tests in all: a level of 1e-5 each gives a false alarm in 5,000 runs, and the keys are fixed.
        assert stats.chisquare(np.bincount(image, minlength=size)).pvalue > 1e-5


def test_small_permutations_are_all_reached_about_equally():
    keys = 12_000
    images = np.stack([KeyedBijection(4, key).many(np.arange(4)) for key in range(keys)])
    _, counts = np.unique(images @ np.array([64, 16, 4, 1]), return_counts=True)
    assert counts.size == 24
    assert stats.chisquare(counts).pvalue > 1e-5


def test_neighbours_do_not_stay_neighbours():
    size = 100_000
    image = KeyedBijection(size, 5).many(np.arange(size)).astype(float)
    # Correlation of an independent order has standard deviation 1/sqrt(n); five of them.
    assert abs(np.corrcoef(image[:-1], image[1:])[0, 1]) < 5 / np.sqrt(size)
    assert abs(np.corrcoef(np.arange(size), image)[0, 1]) < 5 / np.sqrt(size)


def test_the_order_is_fixed_for_good():
    # A change here changes the data order of every run that is to be resumed.
    assert KeyedBijection(10, "golden").many(np.arange(10)).tolist() == [7, 4, 6, 5, 2, 9, 1, 3, 8, 0]


def test_an_index_outside_is_refused():
    with pytest.raises(ValueError, match="outside"):
        KeyedBijection(10, 1)(10)
    with pytest.raises(ValueError, match="nothing"):
        KeyedBijection(0, 1)
