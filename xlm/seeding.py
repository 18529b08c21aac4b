"""Randomness as a function of names, never of history.

Every random decision in the pipeline is drawn from a generator keyed by what it decides about
(seed, corpus, epoch, row, ...). The key is hashed to 128 bits with BLAKE2b and drives Philox, a
counter-based generator (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), so the
same key gives the same numbers in any process, on any rank, in any order.
"""

from __future__ import annotations

import hashlib

import numpy as np

Key = int | str


def key_digest(*parts: Key, size_bytes: int = 16) -> bytes:
    """Hash an ordered key to ``size_bytes`` bytes; 1 and "1" are different parts."""
    digest = hashlib.blake2b(digest_size=size_bytes)
    for part in parts:
        text = f"i{part}" if isinstance(part, int) else f"s{part}"
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(4, "little"))
        digest.update(encoded)
    return digest.digest()


def key_int64(*parts: Key) -> int:
    """Hash a key to a non-negative integer below 2**63 (fits torch.manual_seed and an int64 column)."""
    return int.from_bytes(key_digest(*parts, size_bytes=8), "little") >> 1


def keyed_generator(*parts: Key) -> np.random.Generator:
    """Return a numpy generator whose stream depends on the key alone."""
    philox_key = int.from_bytes(key_digest(*parts), "little")
    return np.random.Generator(np.random.Philox(key=philox_key))
