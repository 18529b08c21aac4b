"""Which texts a training never reads, so that it can be validated on them: a share of the pairs and documents, by hash.

Items and not rows are set aside, because the same text is in many rows: of every layout, length and variant, in every pair
corpus that has its key, and, as a side of a pair, among the documents of its language. A pair is held out where the hash of
its key is below ``share``, a document where that of its folded text is (for the English side of a pair both are the same
number). Whatever else holds such a text, or a side of a held-out pair, is read by neither: it is left out of training,
and counted. Which items these are depends on the corpus and the share alone.

What it does not find: a sentence that is also part of a longer document, and texts that are alike but fold differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xlm.corpora.fold import fold, folded_key
from xlm.seeding import key_digest
from xlm.shards.format import NAME_COLUMN
from xlm.shards.source import TEXT_COLUMNS, Source

HELD_OUT = "held out of training, for validation"

Flags = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class HeldOutTexts:
    """The share, and the hashes of all sides of held-out pairs, ascending; what is below the share need not be listed."""

    share: float
    sides: Hashes

    @classmethod
    def of(cls, sources: Iterable[Source], share: float) -> HeldOutTexts:
        """Look through the keys of all pairs; of the held-out ones the texts are read."""
        found = HeldOutTexts(share, np.empty(0, dtype=np.uint64))
        sides = [np.unique(of_source) for of_source in (found._sides_of(source) for source in sources if source.kind == "pair")]
        return cls(share, np.unique(np.concatenate([found.sides, *sides])))

    def keys(self, names: Sequence[str]) -> Flags:
        """Return which pairs are held out, by their keys: [names]."""
        return self._below(_hashes(names))

    def texts(self, texts: Sequence[str]) -> Flags:
        """Return which texts must not be trained on: [texts]."""
        hashes = _hashes([folded_key(fold(text)) for text in texts])
        return self._below(hashes) | np.isin(hashes, self.sides)

    def _below(self, hashes: Hashes) -> Flags:
        below: Flags = hashes < np.uint64(self.share * 2.0**64)
        return below

    def _sides_of(self, source: Source) -> Hashes:
        return _hashes([folded_key(fold(text)) for text in self._texts_of(source)])

    def _texts_of(self, source: Source) -> Iterator[str]:
        for batch in source.read(0, source.items(), (NAME_COLUMN["pair"], *TEXT_COLUMNS["pair"])):
            names, *texts = (column.to_pylist() for column in batch.columns)
            for place in np.flatnonzero(self.keys(names)).tolist():
                yield from (side[place] for side in texts)


@dataclass(frozen=True)
class HeldOutItems:
    """The items of one shard [items]: which may be trained on, and which are validated on; some are neither."""

    trained: Flags
    validated: Flags

    def take(self, kept: Flags) -> HeldOutItems:
        """Return those of the items that are kept, [kept]."""
        return HeldOutItems(self.trained[kept], self.validated[kept])


def held_out_items(held_out: HeldOutTexts, names: Sequence[str], texts: Sequence[Sequence[str]]) -> HeldOutItems:
    """Sort items by their names and the texts of their sides, [sides][items]; one side: documents."""
    touched = np.logical_or.reduce([held_out.texts(side) for side in texts])
    return HeldOutItems(~touched, touched if len(texts) == 1 else held_out.keys(names))


def _hashes(names: Sequence[str]) -> Hashes:
    digests = b"".join(key_digest("held out", name, size_bytes=8) for name in names)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)
