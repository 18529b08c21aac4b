"""Raw random words of many keys in a row.

A row needs a few words of its own generator, and making a numpy generator costs twenty microseconds, more
than masking the row. Philox is counter-based (Salmon et al. 2011), so one generator can be given the next
key instead; the words are those of `xlm.seeding.keyed_generator` for the same key.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]


class KeyedWords:
    """Draws words for one key after the other; an object belongs to one thread."""

    def __init__(self) -> None:
        self._philox = np.random.Philox(key=0)
        self._state = self._philox.state

    def draw(self, key: bytes, count: int, *, stream: int = 0) -> Words:
        """Return the first ``count`` words of a 16-byte key (`key_digest`); streams of one key are independent, [count]."""
        inner = self._state["state"]
        inner["key"][:] = np.frombuffer(key, dtype="<u8")
        inner["counter"][:] = (0, 0, 0, stream)
        self._philox.state = self._state
        words: Words = self._philox.random_raw(count)
        return words
