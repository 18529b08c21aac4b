"""Units of two pieces of text, A and B, for next-sentence and sentence-order prediction.

A document is taken apart into stretches of consecutive sentences that fit a row, and each stretch is
divided at a sentence into A and its continuation B (BERT, Devlin et al. 2019, appendix A.2: a tenth of the
stretches aim at a random shorter length). For next-sentence prediction half of the units then have
their B exchanged with a unit of another document, two and two: every piece of text still occurs once,
and since both B are about equally long, length does not tell which units those are.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from xlm.shards.cutting import Spans
from xlm.shards.documents import Documents

SHORT_SHARE = 0.1
# How many units without a partner are kept in mind while looking for one.
_PENDING = 64


def sentence_units(documents: Documents, capacity: int, generator: np.random.Generator) -> tuple[Spans, Spans, int]:
    """Return A and B of every unit, at most ``capacity`` tokens together, and how many documents have no two sentences.

    No sentence of the other documents is left out. One longer than half a row is cut before a word.
    """
    sentences = np.bincount(documents.sentences(capacity=len(documents.shard.tokens[0]) + 1).item, minlength=documents.shard.items)
    enough = sentences > 1
    pieces = documents.sentences(capacity // 2)
    pieces = pieces.take(enough[pieces.item])
    begins_sentence = np.isin(documents.offsets[pieces.item] + pieces.start, documents.sentence_points)
    first_of_document = np.flatnonzero(np.diff(pieces.item, prepend=-1))
    units: list[tuple[int, int, int, int]] = []
    ends, starts_sentence = pieces.end.tolist(), begins_sentence.tolist()
    bounds = [*first_of_document.tolist(), len(pieces)]
    for first, last in pairwise(bounds):
        item = int(pieces.item[first])
        marks = [0, *ends[first:last]]
        _divide(units, documents, item, marks, [*starts_sentence[first:last], False], capacity, generator)
    items, starts, middles, ends_of_b = np.array(units, dtype=np.int64).reshape(-1, 4).T
    return Spans(items, starts, middles), Spans(items, middles, ends_of_b), int(documents.shard.items - enough.sum())


def _divide(
    units: list[tuple[int, int, int, int]],
    documents: Documents,
    item: int,
    marks: list[int],
    begins_sentence: list[bool],
    capacity: int,
    generator: np.random.Generator,
) -> None:
    """Append the units (item, start of A, start of B, end of B) of one document.

    Piece i of it is tokens ``marks[i]`` to ``marks[i + 1]``, at most half of ``capacity`` of them.
    """
    first, pieces = 0, len(marks) - 1
    while first < pieces:
        target = capacity
        if generator.random() < SHORT_SHARE:
            target = int(generator.integers(2, capacity, endpoint=True))
        last = first + 2
        while last < pieces and marks[last + 1] - marks[first] <= target:
            last += 1
        if pieces - last == 1:  # a single piece could not be divided
            if marks[pieces] - marks[first] <= capacity:
                last = pieces
            elif last - first > 2:
                last -= 1
            else:  # three pieces too long for one unit: as four they make two
                longest = max(range(first, pieces), key=lambda piece: marks[piece + 1] - marks[piece])
                marks.insert(longest + 1, documents.middle_word(item, marks[longest], marks[longest + 1]))
                begins_sentence.insert(longest + 1, False)
                pieces += 1
        inner = range(first + 1, last)
        places = [place for place in inner if begins_sentence[place]] or inner
        middle = places[int(generator.integers(len(places)))]
        units.append((item, marks[first], marks[middle], marks[last]))
        first = last


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
