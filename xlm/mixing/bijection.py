"""A keyed bijection of range(n): the order of a corpus's rows in an epoch, without a list of them.

A shuffled list costs memory for every row and must be kept or made again on resuming; a bijection gives
the row at any place from the key alone. It is a Feistel network of eight rounds over the b bits that hold
n - 1 (Luby & Rackoff 1988: a few rounds of a pseudo-random function make a pseudo-random permutation),
its halves b // 2 and b - b // 2 bits wide. What lands outside range(n) goes through again until it lands
inside (cycle walking, Black & Rogaway 2002), fewer than two passes on average since 2^b < 2n.

Everything is unsigned 64-bit arithmetic, so that the order is the same on every machine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xlm.seeding import Key, key_int64

ROUNDS = 8
MAXIMUM_SIZE = 1 << 62

Words = NDArray[np.uint64]
# Constants of SplitMix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators").
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_SHIFTS = tuple(np.uint64(shift) for shift in (30, 27, 31))
_ONE = np.uint64(1)


def permute(index: NDArray[np.int64], size: NDArray[np.int64], seed: NDArray[np.int64]) -> NDArray[np.int64]:
    """Map ``index`` [m] through the bijection of range(``size`` [m]) with key ``seed`` [m], elementwise.

    Raises ValueError for an index outside its range.
    """
    if not ((index >= 0) & (index < size)).all() or (size > MAXIMUM_SIZE).any():
        raise ValueError(f"an index lies outside its range, or a range is larger than {MAXIMUM_SIZE}")
    bits = np.frexp((size - 1).astype(np.float64))[1].astype(np.uint64)
    # frexp is exact below 2^53; above, n - 1 may round up to the next power of two, which only adds a bit.
    low_bits = bits - bits // np.uint64(2)
    low_mask = (_ONE << low_bits) - _ONE
    high_mask = (_ONE << (bits // np.uint64(2))) - _ONE
    value, bound, key = index.astype(np.uint64), size.astype(np.uint64), seed.astype(np.uint64)
    value = _feistel(value, key, low_bits, low_mask, high_mask)
    outside = np.flatnonzero(value >= bound)
    while outside.size:
        walked = _feistel(value[outside], key[outside], low_bits[outside], low_mask[outside], high_mask[outside])
        value[outside] = walked
        outside = outside[walked >= bound[outside]]
    return value.astype(np.int64)


class KeyedBijection:
    """A permutation of range(``size``) that depends on its key alone; holds no table."""

    def __init__(self, size: int, *key: Key) -> None:
        if size < 1:
            raise ValueError("there is no permutation of nothing")
        self.size = size
        self.seed = key_int64(*key)

    def __call__(self, index: int) -> int:
        """Return where one index goes."""
        return int(self.many(np.array([index], dtype=np.int64))[0])

    def many(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where each index goes: [m] to [m] int64."""
        return permute(index, np.full(index.shape, self.size, dtype=np.int64), np.full(index.shape, self.seed, dtype=np.int64))


def _mixed(word: Words) -> Words:
    word = (word ^ (word >> _SHIFTS[0])) * _MIX_1
    word = (word ^ (word >> _SHIFTS[1])) * _MIX_2
    return word ^ (word >> _SHIFTS[2])


def _feistel(value: Words, key: Words, low_bits: Words, low_mask: Words, high_mask: Words) -> Words:
    low, high = value & low_mask, value >> low_bits
    round_key = key
    for number in range(ROUNDS):
        round_key = round_key + _GAMMA
        if number % 2:
            low = low ^ (_mixed(_mixed(round_key) ^ high) & low_mask)
        else:
            high = high ^ (_mixed(_mixed(round_key) ^ low) & high_mask)
    return (high << low_bits) | low
