"""Filling rows to the last position with texts of which only certain runs may be taken.

Texts come in a given order. Of the next hundred a row begins with the one of which most is left, so that no
long text is left over alone at the end, and takes texts whole for as long as plenty of the row is left. Its end is
filled by a search: a run of one of the next texts, the longest first, and a run of another, such that little or
nothing stays empty. A text that gave a run goes on from there in a later row. Whole sentences can so fill rows of
which one document alone would leave a tenth empty; the price is that rows end with runs of other documents.

The runs that a text may give are a set of lengths, kept as the bits of an integer: the longest that fits is
the highest bit up to there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np
import numpy.typing as npt

# Texts that are looked through for the last run of a row, for the one before it, and how many of its lengths are tried.
AHEAD, FIRST, TRIES = 100, 24, 6
# A row is filled by search from where at most this part of it is left.
SEARCHED_PART = 0.25
# No row is searched further once it leaves no more than this part of it empty, if rows so far allow for that.
MOST_EMPTY = 0.03

Numbers = npt.NDArray[np.int64]


class Runs(Protocol):
    """Which runs of a text from ``start`` may be taken, as bits: bit n for n tokens, never bit 0, none longer than a row holds."""

    def lengths_of_runs(self, item: int, start: int, end: int) -> int:
        """Return the lengths of good runs; 0 for none."""
        ...

    def makeshift(self, item: int, start: int, end: int) -> int:
        """Return the lengths that may be taken where rows would stay too empty otherwise; never 0 where there is no good run."""
        ...


@dataclass(slots=True)
class _Text:
    item: int
    start: int
    end: int
    lengths: int
    run: list[int] | None = None  # the last that was taken: row, item, start, end


class Filler:
    """Fills rows of ``room`` positions; a run costs ``cost`` positions beside its tokens.

    While no more than ``empty_share`` of all positions is empty, rows may be left as they are; above it the
    search goes on to its end, and then texts are cut where they otherwise would not be.
    """

    def __init__(self, room: int, cost: int, runs: Runs, *, empty_share: float) -> None:
        self._room, self._cost, self._runs, self._empty_share = room, cost, runs, empty_share
        self._texts: list[_Text] = []
        self._placed: list[list[int]] = []
        self._positions = self._empty = 0

    def fill(self, items: Numbers, lengths: Numbers, *, begun: Iterable[tuple[int, int]] = (), rows: int = 0) -> None:
        """Place every token of texts of these ``lengths``, in this order, once.

        ``begun`` are rows to be filled up first: (number, positions left). New rows are numbered from ``rows``.
        """
        coming = iter(zip(items.tolist(), lengths.tolist(), strict=True))
        self._refill(coming)
        for row, left in begun:
            self._fill_row(row, left, coming, begun=True)
        while self._texts:
            self._fill_row(rows, self._room, coming, begun=False)
            rows += 1

    def columns(self) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Return the row, item, start and end of every run, each [runs]; runs of a row in the order they were placed."""
        row, item, start, end = np.array(self._placed, dtype=np.int64).reshape(-1, 4).T
        return row, item, start, end

    def _refill(self, coming: Iterator[tuple[int, int]]) -> None:
        missing = AHEAD - len(self._texts)
        self._texts += [_Text(item, 0, end, self._runs.lengths_of_runs(item, 0, end)) for item, end in islice(coming, missing)]

    def _fill_row(self, row: int, left: int, coming: Iterator[tuple[int, int]], *, begun: bool) -> None:
        self._positions += left
        searched = max(self._cost + 1, int(self._room * SEARCHED_PART))
        if not begun:
            left_of = [text.end - text.start for text in self._texts]
            most = left_of.index(max(left_of))
            self._texts[0], self._texts[most] = self._texts[most], self._texts[0]
        while self._texts:
            text = self._texts[0]
            whole = text.end - text.start
            if left - self._cost - whole < searched:
                break
            left -= self._take(row, 0, whole)
            begun = True
            self._refill(coming)
        while left > self._cost and self._texts:
            found = self._search(left, only_first=not begun)
            if not found:
                break
            # From the back, since a text that is used up leaves the list.
            for place, length in sorted(found, reverse=True):
                left -= self._take(row, place, length)
            begun = True
            self._refill(coming)
        self._empty += left

    def _search(self, left: int, *, only_first: bool) -> list[tuple[int, int]]:
        """Return one or two runs (place of the text, length) that leave as little as possible of ``left`` positions empty.

        With ``only_first`` one of them is of the first text: a row that holds nothing yet must take something of it.
        """
        budget = self._empty_share * self._positions - self._empty
        enough = max(0, int(min(budget, MOST_EMPTY * self._room)))
        best: list[tuple[int, int]] = []
        least = left
        for place, text in enumerate(self._texts[: 1 if only_first else FIRST]):
            fitting = text.lengths & ((2 << (left - self._cost)) - 1)
            for _ in range(TRIES):
                if not fitting:
                    break
                length = fitting.bit_length() - 1
                fitting ^= 1 << length
                rest = left - self._cost - length
                last = self._longest(rest - self._cost, place) if rest > enough else None
                empty = rest if last is None else rest - self._cost - last[1]
                if empty < least:
                    best, least = [(place, length), *([last] if last else [])], empty
                    if least <= enough:
                        return best
        if least > budget or (only_first and not best):
            return self._cut(left, least) or best
        return best

    def _longest(self, room: int, besides: int) -> tuple[int, int] | None:
        """Return the longest run of at most ``room`` tokens that a text other than ``besides`` may give."""
        if room <= 0:
            return None
        mask = (2 << room) - 1
        best, longest = -1, 0
        for place, text in enumerate(self._texts):
            length = (text.lengths & mask).bit_length() - 1
            if length > longest and place != besides:
                best, longest = place, length
                if length == room:
                    break
        return (best, longest) if longest else None

    def _cut(self, left: int, least: int) -> list[tuple[int, int]]:
        """Return a makeshift run of the first text where it leaves less than ``least`` positions empty."""
        text = self._texts[0]
        room = left - self._cost
        length = (self._runs.makeshift(text.item, text.start, text.end) & ((2 << room) - 1)).bit_length() - 1
        return [(0, length)] if length > 0 and room - length < least else []

    def _take(self, row: int, place: int, length: int) -> int:
        """Place a run and return the positions it takes; one that goes on in the same row becomes part of the run before it."""
        text = self._texts[place]
        text.start += length
        if text.run is not None and text.run[0] == row:
            text.run[3] = text.start
            taken = length
        else:
            text.run = [row, text.item, text.start - length, text.start]
            self._placed.append(text.run)
            taken = length + self._cost
        if text.start == text.end:
            del self._texts[place]
        else:
            text.lengths = self._runs.lengths_of_runs(text.item, text.start, text.end)
        return taken
