"""Sets of character 5-grams as arrays of hashes, and MinHash bands over them.

Texts are hashed together, one numpy pass over all their characters, because a Python loop over the
5-grams of 150,000 strings takes minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xlm.seeding import keyed_generator

GRAM_SIZE = 5
BANDS, ROWS_PER_BAND = 24, 4
# The owner of a gram (its text's index) rides in the upper 16 bits, so that one sort of plain integers
# groups grams by text and makes each set distinct.
_HASH_BITS = 48
_MAX_TEXTS = 1 << (64 - _HASH_BITS)
_HASH_MASK = np.uint64((1 << _HASH_BITS) - 1)
_BASE = np.uint64(0x9E3779B97F4A7C15)
_CHUNK_GRAMS = 1 << 20

Array = NDArray[np.uint64]


@dataclass(frozen=True)
class GramSets:
    """The gram sets of several texts, end to end: text i owns ``hashes[offsets[i]:offsets[i + 1]]``, sorted and distinct."""

    hashes: Array  # [G] uint64, 48 bits used
    offsets: NDArray[np.int64]  # [texts + 1]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Return [texts] the number of distinct grams of each text."""
        return np.diff(self.offsets)

    def set_of(self, index: int) -> Array:
        """Return the sorted gram hashes of one text."""
        return self.hashes[self.offsets[index] : self.offsets[index + 1]]

    def take(self, indices: NDArray[np.int64]) -> GramSets:
        """Return the sets of the given texts, in the given order."""
        sizes = self.sizes[indices]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        positions = np.arange(offsets[-1]) + np.repeat(self.offsets[indices] - offsets[:-1], sizes)
        return GramSets(self.hashes[positions], offsets)


def gram_sets(texts: Sequence[str]) -> GramSets:
    """Hash the character 5-grams of each non-empty text; a text shorter than five characters is one gram."""
    parts = [_gram_sets_of_chunk(texts[start : start + _MAX_TEXTS]) for start in range(0, len(texts), _MAX_TEXTS)]
    if not parts:
        return GramSets(np.zeros(0, dtype=np.uint64), np.zeros(1, dtype=np.int64))
    sizes = np.concatenate([part.sizes for part in parts])
    return GramSets(np.concatenate([part.hashes for part in parts]), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))


def _gram_sets_of_chunk(texts: Sequence[str]) -> GramSets:
    # U+0000 cannot occur in folded text, so a padded short text equals no other gram.
    padded = [text.ljust(GRAM_SIZE, "\0") for text in texts]
    lengths = np.array([len(text) for text in padded], dtype=np.int64)
    characters = np.frombuffer("".join(padded).encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
    windows = len(characters) - GRAM_SIZE + 1
    values = np.zeros(windows, dtype=np.uint64)
    for place in range(GRAM_SIZE):
        values = values * _BASE + characters[place : place + windows]
    owners = np.repeat(np.arange(len(padded), dtype=np.uint64), lengths)[:windows]
    ends = np.cumsum(lengths)
    inside = np.arange(windows) + GRAM_SIZE <= ends[owners.astype(np.int64)]
    keyed = np.sort((owners[inside] << np.uint64(_HASH_BITS)) | (_mix(values[inside]) & _HASH_MASK))
    distinct = np.ones(len(keyed), dtype=np.bool_)
    distinct[1:] = keyed[1:] != keyed[:-1]
    keyed = keyed[distinct]
    counts = np.bincount((keyed >> np.uint64(_HASH_BITS)).astype(np.int64), minlength=len(padded))
    return GramSets(keyed & _HASH_MASK, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))


def minhash_bands(grams: GramSets) -> Array:
    """Return [texts, bands] hashes: equal in one band where four MinHashes agree, with probability Jaccard^4 a band."""
    generator = keyed_generator("corpora", "held-out", "minhash")
    salts = generator.integers(0, 1 << 63, size=(BANDS, ROWS_PER_BAND), dtype=np.uint64)
    result = np.zeros((len(grams), BANDS), dtype=np.uint64)
    for first, last in _chunks(grams.offsets):
        hashes = grams.hashes[grams.offsets[first] : grams.offsets[last]]
        starts = grams.offsets[first:last] - grams.offsets[first]
        for band in range(BANDS):
            value = np.full(last - first, band + 1, dtype=np.uint64)
            for salt in salts[band]:
                value = _mix(value * _BASE + np.minimum.reduceat(_mix(hashes ^ salt), starts))
            result[first:last, band] = value
    return result


def _chunks(offsets: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Cut texts into runs of about a million grams, which keeps temporaries in the cache's reach."""
    chunks = []
    first = 0
    while first < len(offsets) - 1:
        last = int(np.searchsorted(offsets, offsets[first] + _CHUNK_GRAMS, side="right")) - 1
        last = min(max(last, first + 1), len(offsets) - 1)
        chunks.append((first, last))
        first = last
    return chunks


def _mix(values: Array) -> Array:
    """Scramble 64-bit integers (the finaliser of SplitMix64, Steele, Lea & Flood 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
