"""Which texts of n-way parallel corpora are in which languages, and where: keys as 64-bit hashes in sorted arrays.

Memory is 8 + L / 8 bytes for each distinct key (L languages), and about 50 bytes for each pair of the corpus at hand;
everything else lies in files. Two of 10 million keys have the same hash with probability 3 in a million.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from xlm.shards.format import NAME_COLUMN
from xlm.shards.source import Source
from xlm.shards.turns import Array, Keys


@dataclass(frozen=True)
class Places:
    """Where the texts of a language are: text ``key`` (ascending) is item ``item`` of corpus ``corpus``; all [keys]."""

    key: Keys
    corpus: npt.NDArray[np.uint16]
    item: Array

    def take(self, rows: npt.NDArray[np.intp]) -> Places:
        """Return some of them, in this order."""
        return Places(self.key[rows], self.corpus[rows], self.item[rows])


class KeyTable:
    """The keys of all pair corpora; intermediate files are written to ``folder``."""

    def __init__(self, sources: Sequence[Source], folder: Path) -> None:
        self.sources = tuple(sources)
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)
        for number, source in enumerate(sources):
            np.save(self._keys_file(number), key_hashes(source))
        self.languages = sorted({language for source in sources for language in source.languages})

    def keys_of(self, corpus: int) -> Keys:
        """Return the keys [items] of a corpus's items."""
        keys: Keys = np.load(self._keys_file(corpus))
        return keys

    @cached_property
    def keys(self) -> Keys:
        """Every distinct key, ascending."""
        keys = np.empty(0, dtype=np.uint64)
        for number in range(len(self.sources)):
            keys = np.union1d(keys, self.keys_of(number))
        return keys

    @cached_property
    def _spoken(self) -> npt.NDArray[np.uint8]:
        """Bit l of column k: whether key k is in language l; [ceil(languages / 8), keys]."""
        spoken = np.zeros((-(-len(self.languages) // 8), len(self.keys)), dtype=np.uint8)
        for number, source in enumerate(self.sources):
            found = np.searchsorted(self.keys, np.unique(self.keys_of(number)))
            for language in source.languages:
                byte, bit = divmod(self.languages.index(language), 8)
                spoken[byte, found] |= np.uint8(1 << bit)
        return spoken

    def count_languages(self, rows: Array | slice = slice(None), before: str | None = None) -> Array:
        """Return in how many languages keys are, [rows]; with ``before``, in how many that sort before that one."""
        end = len(self.languages) if before is None else self.languages.index(before)
        count = np.zeros(len(self.keys[rows]), dtype=np.int64)
        for byte in range(-(-end // 8)):
            mask = np.uint8((1 << min(8, end - 8 * byte)) - 1)
            count += np.bitwise_count(self._spoken[byte, rows] & mask)
        return count

    def places(self, language: str) -> Places:
        """Return where a language's texts are; of several translations with the same key the first of the first corpus."""
        files = [self._folder / f"places-{language}-{part}.npy" for part in ("key", "corpus", "item")]
        if not files[0].exists():
            corpora = [number for number, source in enumerate(self.sources) if language in source.languages]
            parts = [self.keys_of(number) for number in corpora]
            key, first = np.unique(np.concatenate(parts), return_index=True)
            begins = np.cumsum([0, *map(len, parts)])
            part = np.searchsorted(begins, first, side="right") - 1
            for file, array in zip(files, (key, np.array(corpora, dtype=np.uint16)[part], first - begins[part]), strict=True):
                np.save(file, array)
        return Places(*(np.load(file, mmap_mode="r") for file in files))

    def _keys_file(self, corpus: int) -> Path:
        return self._folder / f"keys-{corpus}.npy"


def key_hashes(source: Source) -> Keys:
    """Return a 64-bit hash of each item's key, [items]; the strings are in memory a batch at a time."""
    parts = [_hashes(batch.column(0)) for batch in source.read(0, source.items(), (NAME_COLUMN[source.kind],))]
    return np.concatenate([np.empty(0, dtype=np.uint64), *parts])


def _hashes(keys: pa.StringArray) -> Keys:
    digests = b"".join(hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest() for key in keys.to_pylist())
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)
