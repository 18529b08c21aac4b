"""Random words by counter: any word of any row, without the words before it.

A row has a 64-bit seed, and word j of its stream s is SplitMix64's finaliser of seed + gamma (s 2^32 + j + 1),
modulo 2^64: the generator of Steele, Lea & Flood 2014 ("Fast splittable pseudorandom number generators"), read
at a place instead of one word after the other. The words of a micro-batch are a handful of array operations,
where a numpy generator a row would cost more than all the masking.

Quality: the finaliser is a bijection that passes BigCrush on consecutive counters (ibid.), and a row reads
at most 2^32 words of a stream, so streams of a row share no word. Seeds are outputs of the same generator over row
numbers, hence different for all rows of a base and scattered over the 2^64 places of one cycle; two given rows
overlap in some of their n words with probability 2n / 2^64, and then at places that differ.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xlm.batching.packed_rows import Ids, positions_within

Words = NDArray[np.uint64]

# Streams of a row's seed; a new use of randomness takes a new one.
SELECTION, FATE, DIRECTION, LENGTH, MIXUP, REPLACEMENT = range(6)

_GAMMA = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio, made odd
_STREAM_BITS = 32


def scramble(states: Words) -> Words:
    """Apply SplitMix64's finaliser (Stafford's variant 13 of MurmurHash3's) in place, any shape; returns ``states``."""
    shifted = states >> np.uint64(30)
    states ^= shifted
    states *= np.uint64(0xBF58476D1CE4E5B9)
    np.right_shift(states, np.uint64(27), out=shifted)
    states ^= shifted
    states *= np.uint64(0x94D049BB133111EB)
    np.right_shift(states, np.uint64(31), out=shifted)
    states ^= shifted
    return states


def row_seeds(bases: Words, rows: Ids) -> Words:
    """Return the seeds of rows [R]: word ``rows[i]`` of a generator seeded with ``bases[i]``."""
    return scramble(bases + _GAMMA * (rows.view(np.uint64) + np.uint64(1)))


def words_at(seeds: Words, counters: Ids, stream: int) -> Words:
    """Return word ``counters`` of each seed; the two broadcast, and their joint shape is the result's."""
    return scramble(seeds + _GAMMA * (counters.view(np.uint64) + np.uint64((stream << _STREAM_BITS) + 1)))


def uniforms_of(words: Words) -> NDArray[np.float64]:
    """Return numbers in [0, 1), each the 53 high bits of a word."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def words(seeds: Words, counts: Ids, stream: int) -> Words:
    """Return the first ``counts[i]`` words of every seed [R], end to end: [sum of counts]."""
    return words_at(np.repeat(seeds, counts), positions_within(counts), stream)
