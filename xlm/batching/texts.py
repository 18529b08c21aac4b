"""Texts that lie somewhere in flat token arrays, and are copied from there straight into a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlm.batching.packed_rows import Ids, ranges, starts_of

Pieces = NDArray[Any]  # ids in whatever integer type they are kept


@dataclass(frozen=True, slots=True)
class Stretch:
    """Texts number ``which`` [m] begin at ``starts`` [m] of one flat array of pieces."""

    which: Ids
    pieces: Pieces
    starts: Ids


@dataclass(frozen=True, slots=True)
class Texts:
    """n texts of these ``lengths`` [n], each in one of the stretches."""

    lengths: Ids
    stretches: Sequence[Stretch]

    @classmethod
    def of(cls, arrays: Sequence[Pieces]) -> Texts:
        """Take arrays of ids, each one text."""
        lengths = np.array([len(array) for array in arrays], dtype=np.int64)
        pieces = np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)
        return cls(lengths, [Stretch(np.arange(len(arrays)), pieces, starts_of(lengths))])

    @classmethod
    def joined(cls, parts: Sequence[Texts]) -> Texts:
        """Return the texts of all parts, in order."""
        stretches: list[Stretch] = []
        before = 0
        for part in parts:
            stretches += [Stretch(stretch.which + before, stretch.pieces, stretch.starts) for stretch in part.stretches]
            before += part.lengths.size
        return cls(np.concatenate([part.lengths for part in parts]), stretches)

    def copy_to(self, out: Ids, starts: Ids) -> None:
        """Write text i to ``out[starts[i] : starts[i] + lengths[i]]``; ``starts`` is [n]."""
        for stretch in self.stretches:
            lengths = self.lengths[stretch.which]
            out[ranges(starts[stretch.which], lengths)] = stretch.pieces[ranges(stretch.starts, lengths)]
