"""Units of two pieces of text, A and B, for next-sentence and sentence-order prediction.

A document is taken apart into stretches of consecutive sentences that fit a row, and each stretch is
divided at a sentence into A and its continuation B (BERT, Devlin et al. 2019, appendix A.2: a tenth of the
stretches aim at a random shorter length). For next-sentence prediction half of the units then have
their B exchanged with a unit of another document, two and two: every piece of text still occurs once,
and since both B are about equally long, length does not tell which units those are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from xlm.shards.cutting import Spans, cut, split
from xlm.shards.reader import TokenShard

SHORT_SHARE = 0.1
# How many units without a partner are kept in mind while looking for one.
_PENDING = 64


def sentence_units(
    shard: TokenShard,
    is_word_start: npt.NDArray[np.bool_],
    capacity: int,
    generator: np.random.Generator,
    taken: npt.NDArray[np.bool_] | None = None,
) -> tuple[Spans, Spans, int]:
    """Return A and B of every unit, at most ``capacity`` tokens together, and how many documents have no two sentences.

    Of the documents ``taken`` [items] (None: all) no sentence of the others is left out. One longer than half of
    ``capacity`` is cut before a word.
    """
    offsets = shard.offsets[0]
    lengths = np.diff(offsets)
    sentence_points = shard.sentence_starts()[1]
    sentences = split(Spans(np.arange(shard.items), np.zeros_like(lengths), lengths), offsets, sentence_points)
    taken = np.ones(shard.items, dtype=np.bool_) if taken is None else taken
    enough = taken & (np.bincount(sentences.item, minlength=shard.items) > 1)
    words = np.flatnonzero(is_word_start[shard.tokens[0]])
    pieces = cut(sentences.take(enough[sentences.item]), capacity // 2, offsets, words)
    begins_sentence = np.isin(offsets[pieces.item] + pieces.start, sentence_points, assume_unique=True).tolist()
    ends = pieces.end.tolist()
    units: list[tuple[int, int, int, int]] = []
    for first, last in pairwise([*np.flatnonzero(np.diff(pieces.item, prepend=-1)).tolist(), len(pieces)]):
        item = int(pieces.item[first])
        base = int(offsets[item])
        document = _Document([0, *ends[first:last]], [*begins_sentence[first:last], False], words, base)
        units += [(item, *unit) for unit in document.units(capacity, generator)]
    items, starts, middles, ends_of_b = np.array(units, dtype=np.int64).reshape(-1, 4).T
    return Spans(items, starts, middles), Spans(items, middles, ends_of_b), int(taken.sum() - enough.sum())


@dataclass
class _Document:
    """A document in pieces: piece i is tokens ``marks[i]`` to ``marks[i + 1]``, at most half of a unit's."""

    marks: list[int]
    begins_sentence: list[bool]
    words: npt.NDArray[np.int64]  # where words begin in the flat tokens of the shard
    base: int  # where the document begins there

    def units(self, capacity: int, generator: np.random.Generator) -> Iterator[tuple[int, int, int]]:
        """Yield (start of A, start of B, end of B), one unit after the other."""
        marks, first = self.marks, 0
        while first < len(marks) - 1:
            target = capacity
            if generator.random() < SHORT_SHARE:
                target = int(generator.integers(2, capacity, endpoint=True))
            last = first + 2
            while last < len(marks) - 1 and marks[last + 1] - marks[first] <= target:
                last += 1
            if len(marks) - 1 - last == 1:  # a single piece could not be divided
                if marks[-1] - marks[first] <= capacity:
                    last += 1
                elif last - first > 2:
                    last -= 1
                else:  # three pieces too long for one unit: as four they make two
                    self._halve(max(range(first, last + 1), key=lambda piece: marks[piece + 1] - marks[piece]))
            inner = range(first + 1, last)
            places = [place for place in inner if self.begins_sentence[place]] or inner
            middle = places[int(generator.integers(len(places)))]
            yield marks[first], marks[middle], marks[last]
            first = last

    def _halve(self, piece: int) -> None:
        """Cut a piece where the word nearest to its middle begins, else in the middle."""
        start, end = self.marks[piece], self.marks[piece + 1]
        middle = (start + end) // 2
        inside = slice(*np.searchsorted(self.words, [self.base + start + 1, self.base + end]))
        words = self.words[inside] - self.base
        self.marks.insert(piece + 1, int(words[np.abs(words - middle).argmin()]) if len(words) else middle)
        self.begins_sentence.insert(piece + 1, False)


def exchange(first: Spans, second: Spans, capacity: int, generator: np.random.Generator) -> tuple[Spans, int]:
    """Exchange the B of half of the units, in pairs; return the new B and how many should have been exchanged but were not.

    Two units exchange theirs when they are of different documents and both still fit ``capacity``. Half is
    the nearest number of pairs.
    """
    candidates = _partners(first, second, capacity, generator)
    wanted = round(len(first) / 4)
    chosen = np.array(candidates, dtype=np.int64).reshape(-1, 2)[generator.permutation(len(candidates))[:wanted]]
    source = np.arange(len(first))
    source[chosen[:, 0]], source[chosen[:, 1]] = chosen[:, 1], chosen[:, 0]
    return second.take(source), 2 * (wanted - len(chosen))


def _partners(first: Spans, second: Spans, capacity: int, generator: np.random.Generator) -> list[tuple[int, int]]:
    """Pair as many units as a walk through them by length of B finds partners for; each is in one pair at most."""
    order = generator.permutation(len(first))
    order = order[np.argsort(second.lengths[order], kind="stable")]
    items, a_lengths, b_lengths = first.item.tolist(), first.lengths.tolist(), second.lengths.tolist()
    pairs: list[tuple[int, int]] = []
    pending: list[int] = []
    for unit in order.tolist():
        for place in range(len(pending) - 1, -1, -1):
            other = pending[place]
            # The other's B is the shorter one, so it fits here.
            if items[other] != items[unit] and a_lengths[other] + b_lengths[unit] <= capacity:
                pairs.append((other, unit))
                del pending[place]
                break
        else:
            pending.append(unit)
            if len(pending) > _PENDING:
                del pending[0]
    return pairs
