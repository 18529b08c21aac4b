"""A keyed bijection of range(n): the order of a corpus's rows in an epoch, without a list of them.

A shuffled list costs memory for every row and must be kept or made again on resuming; a bijection gives
the row at any place from the key alone. It is a generalised Feistel network (Black & Rogaway 2002,
"Ciphers with arbitrary finite domains") of eight rounds over a rectangle of a x b places, a the square
root of n rounded up and b = ceil(n / a): each round shifts one coordinate by a pseudo-random function of
the other, modulo its side. The rectangle is at most a - 1 places larger than range(n); what lands in the
excess goes through again until it lands inside (cycle walking), which is rare and costs one pass more.

Everything is unsigned 64-bit arithmetic and a correctly rounded square root, so that the order is the
same on every machine. All of a batch goes through in one call: a few dozen numpy operations, whatever the
number of corpora.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ROUNDS = 8
MAXIMUM_SIZE = 1 << 62

Words = NDArray[np.uint64]
# Constants of SplitMix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators").
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_SHIFTS = tuple(np.uint64(shift) for shift in (30, 27, 31))
_HALF = np.uint64(32)
_ONE = np.uint64(1)
_ROUND_NUMBERS = np.arange(ROUNDS, dtype=np.uint64)[:, None]


def permute(index: NDArray[np.int64], size: NDArray[np.int64], seed: Words) -> NDArray[np.int64]:
    """Map ``index`` [m] through the bijection of range(``size`` [m]) with key ``seed`` [m], elementwise.

    Raises ValueError for an index outside its range.
    """
    if not ((index >= 0) & (index < size)).all() or (size > MAXIMUM_SIZE).any():
        raise ValueError(f"an index lies outside its range, or a range is larger than {MAXIMUM_SIZE}")
    keys = derived(seed, _ROUND_NUMBERS)  # [ROUNDS, m]
    high_side = np.ceil(np.sqrt(size)).astype(np.uint64)
    bound = size.astype(np.uint64)
    low_side = (bound + high_side - _ONE) // high_side
    value = _feistel(index.astype(np.uint64), keys, high_side, low_side)
    outside = np.flatnonzero(value >= bound)
    while outside.size:
        walked = _feistel(value[outside], keys[:, outside], high_side[outside], low_side[outside])
        value[outside] = walked
        outside = outside[walked >= bound[outside]]
    return value.astype(np.int64)


def derived(key: Words, number: NDArray[np.uint64]) -> Words:
    """Return the key that follows from ``key`` for each ``number``: word ``number`` of the SplitMix64 stream seeded by it."""
    word = key + _GAMMA * (number + _ONE)
    word ^= word >> _SHIFTS[0]
    word *= _MIX_1
    word ^= word >> _SHIFTS[1]
    word *= _MIX_2
    word ^= word >> _SHIFTS[2]
    return word


def _feistel(value: Words, keys: Words, high_side: Words, low_side: Words) -> Words:
    """Send places of the rectangle ``high_side`` x ``low_side`` to places of it; ``keys`` is [ROUNDS, m]."""
    high = value // low_side
    low = value - high * low_side
    word = np.empty_like(value)
    spare = np.empty_like(value)
    for number in range(ROUNDS):
        moved, given, side = (low, high, low_side) if number % 2 else (high, low, high_side)
        # Two multiplications of Murmur's finaliser mix a coordinate of at most 31 bits into the upper half of a word.
        np.bitwise_xor(keys[number], given, out=word)
        np.multiply(word, _MIX_1, out=word)
        np.right_shift(word, _HALF, out=spare)
        np.bitwise_xor(word, spare, out=word)
        np.multiply(word, _MIX_2, out=word)
        # The upper half as a fraction of 2^32, times the side: a shift below the side, its bias below side / 2^32.
        np.right_shift(word, _HALF, out=word)
        np.multiply(word, side, out=word)
        np.right_shift(word, _HALF, out=word)
        np.add(moved, word, out=moved)
        # moved mod side: where moved < side the difference wraps to a huge number, so the smaller of both is right.
        np.subtract(moved, side, out=word)
        np.minimum(moved, word, out=moved)
    return high * low_side + low
