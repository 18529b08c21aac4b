import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from xlm.batching.keyed_words import row_seeds, scramble, uniforms_of, words, words_at

# How likely a right generator was to fail a test on the day it was written; nothing here is drawn anew.
ALPHA = 1e-6


def splitmix64(seed, count):
    """The generator as published, one word after the other (Steele, Lea & Flood 2014)."""
    drawn, limit = [], 1 << 64
    for _ in range(count):
        seed = (seed + 0x9E3779B97F4A7C15) % limit
        word = ((seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9) % limit
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) % limit
        drawn.append(word ^ (word >> 31))
    return drawn


def seeds_of(count, base=7):
    return row_seeds(np.full(count, base, dtype=np.uint64), np.arange(count))


def test_the_words_of_the_published_generator():
    # Of seed 1234567, as printed by Vigna's splitmix64.c.
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    assert splitmix64(1234567, 5) == known
    assert words(np.array([1234567], dtype=np.uint64), np.array([5]), 0).tolist() == known


@given(seeds=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8), data=st.data())
def test_words_of_rows_are_those_of_each_alone_and_of_the_reference(seeds, data):
    counts = data.draw(st.lists(st.integers(0, 20), min_size=len(seeds), max_size=len(seeds)))
    stream = data.draw(st.integers(0, 3))
    drawn = words(np.array(seeds, dtype=np.uint64), np.array(counts), stream).tolist()
    expected = []
    for seed, count in zip(seeds, counts, strict=True):
        expected += splitmix64((seed + 0x9E3779B97F4A7C15 * (stream << 32)) % 2**64, count)
    assert drawn == expected


def test_a_word_is_found_without_those_before_it():
    seeds = seeds_of(3)
    whole = words(seeds, np.full(3, 1000), 2).reshape(3, 1000)
    assert np.array_equal(words_at(seeds[:, None], np.array([5, 999]), 2), whole[:, [5, 999]])


@given(base=st.integers(0, 2**64 - 1), rows=st.lists(st.integers(0, 2**62), min_size=1, max_size=20, unique=True))
def test_seeds_differ_and_depend_on_base_and_row_alone(base, rows):
    seeds = row_seeds(np.full(len(rows), base, dtype=np.uint64), np.array(rows))
    assert np.unique(seeds).size == len(rows)
    alone = [int(row_seeds(np.array([base], dtype=np.uint64), np.array([row]))[0]) for row in rows]
    assert seeds.tolist() == alone


def test_the_finaliser_is_one_to_one_on_a_sample():
    states = np.arange(200_000, dtype=np.uint64)
    assert np.unique(scramble(states)).size == 200_000


def grid(rows, columns, stream=0):
    return words(seeds_of(rows), np.full(rows, columns), stream).reshape(rows, columns)


@pytest.mark.parametrize("byte", range(8))
def test_every_byte_is_uniform_over_many_short_rows(byte):
    values = (grid(4000, 64) >> np.uint64(8 * byte)) & np.uint64(255)
    assert stats.chisquare(np.bincount(values.ravel().astype(np.int64), minlength=256)).pvalue > ALPHA


@pytest.mark.parametrize(
    ("what", "draw"),
    [
        ("rows next to each other", (lambda: (grid(4000, 64)[:-1], grid(4000, 64)[1:]))),
        ("words next to each other", (lambda: (grid(4000, 64)[:, :-1], grid(4000, 64)[:, 1:]))),
        ("every other word", (lambda: (grid(4000, 64)[:, :-2], grid(4000, 64)[:, 2:]))),
        ("streams of a row", (lambda: (grid(4000, 64), grid(4000, 64, 1)))),
        ("a word and its seed", (lambda: (grid(4000, 1), seeds_of(4000)[:, None]))),
        ("bases next to each other", (lambda: (seeds_of(4000, 7), seeds_of(4000, 8)))),
    ],
)
def test_no_bit_agrees_more_often_than_by_chance(what, draw):
    first, second = draw()
    equal = ~(first ^ second)
    agreements = [int(((equal >> np.uint64(bit)) & np.uint64(1)).sum()) for bit in range(64)]
    level = ALPHA / 64
    assert all(stats.binomtest(count, first.size).pvalue > level for count in agreements)


def test_no_word_occurs_twice_in_streams_and_rows():
    drawn = np.concatenate([grid(1000, 64, stream).ravel() for stream in range(4)])
    assert np.unique(drawn).size == drawn.size


def test_uniforms_fill_the_interval_and_never_reach_one():
    ends = np.array([0, 2**64 - 1, 2**63], dtype=np.uint64)
    assert uniforms_of(ends).tolist() == [0.0, 1.0 - 2.0**-53, 0.5]
    assert stats.kstest(uniforms_of(grid(1000, 64).ravel()), "uniform").pvalue > ALPHA


def test_first_words_of_rows_are_uncorrelated_at_any_lag():
    first = grid(20_000, 1)[:, 0] / 2.0**64 - 0.5
    spectrum = np.abs(np.fft.rfft(first)) ** 2
    lags = np.fft.irfft(spectrum)[1:1000] / (first.var() * first.size)
    # Correlations of n independent values are normal with variance 1 / n.
    assert np.abs(lags).max() * np.sqrt(first.size) < stats.norm.isf(ALPHA / 2 / lags.size)
