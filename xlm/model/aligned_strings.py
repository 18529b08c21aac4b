"""Strings of pair corpora, brought together by the text that they translate, in bounded memory.

A text and its translations may lie in several corpora and far apart in each. So the strings are first dealt to parts by
a 64-bit hash of their key, in files: all strings of a text are then in one part, which fits into memory, where they are
sorted by key and each distinct one is kept once. Of 10 million keys two have the same hash with probability 3 in a
million.

Shapes: n pairs or strings, T tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from xlm.batching.keyed_words import scramble
from xlm.batching.packed_rows import Ids, positions_within, ranges, starts_of
from xlm.corpora.documents import split_pair_name

_POSITION = np.uint64(0x9E3779B97F4A7C15)
_HEADER_WORDS = 3  # language, strings, tokens

Hashes = npt.NDArray[np.uint64]
Pieces = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class PairBlock:
    """Some pairs of one corpus: side s of pair i is ``ids[s][offsets[s][i]:offsets[s][i + 1]]``."""

    keys: Sequence[str]  # [n]
    ids: tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]  # flat, one array a side
    offsets: tuple[Ids, Ids]  # [n + 1] a side

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, npt.NDArray[np.integer], npt.NDArray[np.integer]]]) -> PairBlock:
        """Lay (key, source ids, target ids) end to end."""
        keys, *sides = zip(*pairs, strict=True)
        offsets = [np.cumsum([0, *map(len, side)], dtype=np.int64) for side in sides]
        return cls(keys, (np.concatenate(sides[0]), np.concatenate(sides[1])), (offsets[0], offsets[1]))

    def without(self, left_out: npt.NDArray[np.bool_]) -> PairBlock:
        """Return the pairs that are not ``left_out`` [n], as copies; the block itself where none is."""
        if not left_out.any():
            return self
        places = np.flatnonzero(~left_out)
        ids, offsets = [], []
        for side, of_side in zip(self.ids, self.offsets, strict=True):
            lengths = np.diff(of_side)[places]
            ids.append(side[ranges(of_side[places], lengths)])
            offsets.append(np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)]))
        return PairBlock([self.keys[place] for place in places.tolist()], (ids[0], ids[1]), (offsets[0], offsets[1]))


@dataclass(frozen=True)
class Strings:
    """Distinct strings end to end, all those of ``columns`` whole texts."""

    pieces: Pieces  # [T]
    lengths: Ids  # [n], at least 1
    column: Ids  # [n], ascending: the text that a string stands for
    language: Ids  # [n]
    columns: int


class StringParts:
    """Strings in files below ``folder``, dealt to ``parts`` by their keys."""

    def __init__(self, folder: Path, parts: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._paths = [folder / f"strings-{number}.bin" for number in range(parts)]
        self.languages: list[str] = []
        self.empty = 0  # strings without pieces, which are left out

    def add(self, corpus: str, block: PairBlock) -> None:
        """Deal the strings of some pairs of a corpus named like ``en_de``."""
        keys = _key_hashes(block.keys)
        for side, language in enumerate(split_pair_name(corpus)):
            if language not in self.languages:
                self.languages.append(language)
            self._deal(self.languages.index(language), keys, block.ids[side], block.offsets[side])

    def read(self) -> Iterator[Strings]:
        """Yield the strings of each part that has any; its file is deleted."""
        for path in self._paths:
            if path.exists():
                with path.open("rb") as file:
                    records = list(_records(file))
                path.unlink()
                language, keys, lengths, pieces = zip(*records, strict=True)
                of_string = np.repeat(np.array(language, dtype=np.int64), [len(own) for own in keys])
                yield distinct(np.concatenate(keys), of_string, np.concatenate(lengths).astype(np.int64), np.concatenate(pieces))

    def _deal(self, language: int, keys: Hashes, ids: npt.NDArray[np.integer], offsets: Ids) -> None:
        lengths = np.diff(offsets)
        kept = np.flatnonzero(lengths)
        self.empty += len(lengths) - len(kept)
        part = (keys[kept] % np.uint64(len(self._paths))).astype(np.int64)
        order = kept[np.argsort(part, kind="stable")]
        for path, mine in zip(self._paths, np.split(order, np.cumsum(np.bincount(part, minlength=len(self._paths)))[:-1]), strict=True):
            if len(mine):
                pieces = ids[ranges(offsets[mine], lengths[mine])]
                with path.open("ab") as file:
                    np.array([language, len(mine), len(pieces)], dtype=np.int64).tofile(file)
                    keys[mine].tofile(file)
                    lengths[mine].astype(np.uint32).tofile(file)
                    pieces.astype(np.uint32).tofile(file)


def distinct(keys: Hashes, language: Ids, lengths: Ids, pieces: Pieces) -> Strings:
    """Keep each string of a key [n] and language [n] once, ordered by key: a text stands in every corpus that pairs it."""
    content = _content_hashes(pieces, lengths)
    order = np.lexsort((content, language, keys))
    new_key = _changes(keys[order])
    kept = new_key | _changes(language[order]) | _changes(content[order])
    column = np.cumsum(new_key) - 1
    chosen = order[kept]
    return Strings(
        pieces=pieces[ranges(starts_of(lengths)[chosen], lengths[chosen])],
        lengths=lengths[chosen],
        column=column[kept],
        language=language[chosen],
        columns=int(new_key.sum()),
    )


def _records(file: BinaryIO) -> Iterator[tuple[int, Hashes, Pieces, Pieces]]:
    """Yield (language, keys, lengths, pieces) as they were written."""
    while len(header := np.fromfile(file, dtype=np.int64, count=_HEADER_WORDS)):
        language, strings, tokens = header.tolist()
        yield (
            language,
            np.fromfile(file, dtype=np.uint64, count=strings),
            np.fromfile(file, dtype=np.uint32, count=strings),
            np.fromfile(file, dtype=np.uint32, count=tokens),
        )


def _key_hashes(keys: Sequence[str]) -> Hashes:
    digests = b"".join(hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest() for key in keys)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def _content_hashes(pieces: Pieces, lengths: Ids) -> Hashes:
    """Return a 64-bit hash of each string's pieces and their order, [n]."""
    places = positions_within(lengths).astype(np.uint64) + np.uint64(1)
    sums: Hashes = np.add.reduceat(scramble(pieces.astype(np.uint64) + _POSITION * places), starts_of(lengths))
    return scramble(sums + lengths.astype(np.uint64))


def _changes(values: npt.NDArray[np.generic]) -> npt.NDArray[np.bool_]:
    """Return where a value [n] is another than the one before it; the first always is."""
    changes = np.ones(len(values), dtype=np.bool_)
    changes[1:] = values[1:] != values[:-1]
    return changes
