"""The rules of one node of a count tree: of the n rows that reach it, how many go left, plateau by plateau.

A rule is a line and a frame. Of n rows the left child is due floor(offset + slope * n), and gets no fewer than
it had when the rule began and no more than all rows since. Lines are in fixed point, `ONE` being one row.

Rules are kept only where they change, and packed: a thousand plateaus over two thousand nodes are two million
rules, which as Python integers would take half a gigabyte.
"""

from __future__ import annotations

import bisect
import struct
from array import array

FRACTION_BITS = 64
ONE = 1 << FRACTION_BITS
_HALF = ONE >> 1
_LOW = ONE - 1
# Offsets that no line comes near: the frame alone decides, and one side gets every row.
_NEVER, _ALWAYS = -(1 << 120), 1 << 120
_RULE = struct.Struct("<qqqQQ")  # the rule's two starts, the offset's high and low half, the slope

Rule = tuple[int, int, int, int]  # rows of the node and of its left side when it began; offset and slope in ONE


def due_left(rule: Rule, rows: int) -> int:
    """Return the rows of the left side when ``rows`` have reached the node."""
    start, left_start, offset, slope = rule
    due = (offset + slope * rows) >> FRACTION_BITS
    if due < left_start:
        return left_start
    most = left_start + rows - start
    return most if due > most else due


class NodeRules:
    """The rules of one node, appended plateau by plateau, and the exact shares that they follow."""

    __slots__ = ("_exact_left", "_exact_node", "_packed", "_plateaus", "_share", "_two_sided", "last")

    def __init__(self) -> None:
        self._plateaus, self._packed = array("q"), bytearray()
        self.last: Rule = (0, 0, _NEVER, 0)
        self._share, self._two_sided = -1, False  # the left share in ONE, and whether both sides are drawn
        self._exact_node = self._exact_left = 0  # in ONE, where the present rule began

    def exact_left(self, exact_node: int) -> int:
        """Return the left side's exact share of all rows so far, in `ONE`, given the node's own."""
        return self._exact_left + ((exact_node - self._exact_node) * self._share >> FRACTION_BITS)

    def begin(self, plateau: int, left: int, right: int, exact_node: int, exact_left: int, rows: int, left_rows: int) -> bool:
        """Begin a plateau in which the sides weigh ``left`` and ``right``; returns whether the rule has changed.

        ``exact_node`` and ``exact_left`` are exact shares, ``rows`` and ``left_rows`` counts at this moment. The
        line starts from the *exact* share, not from the count that was reached: so the errors of one plateau do
        not add to those of the next.
        """
        two_sided = left > 0 and right > 0
        share = (left << FRACTION_BITS) // (left + right) if left else 0
        if self._plateaus and (not (left or right) or (share == self._share and two_sided == self._two_sided)):
            return False  # where nothing reaches the node its rule may stay as well
        self._share, self._two_sided, self._exact_node, self._exact_left = share, two_sided, exact_node, exact_left
        if two_sided:
            offset, slope = exact_left + _HALF - (exact_node * share >> FRACTION_BITS), share
        else:
            offset, slope = _ALWAYS if left else _NEVER, 0
        self.last = (rows, left_rows, offset, slope)
        self._plateaus.append(plateau)
        self._packed += _RULE.pack(rows, left_rows, offset >> FRACTION_BITS, offset & _LOW, slope)
        return True

    def at(self, plateau: int) -> Rule:
        """Return the rule that holds in a plateau."""
        place = bisect.bisect_right(self._plateaus, plateau) - 1
        start, left_start, high, low, slope = _RULE.unpack_from(self._packed, place * _RULE.size)
        return start, left_start, (high << FRACTION_BITS) | low, slope


def most_of_side(rule: Rule, rows: int, left: bool) -> int:
    """Return a bound on the rows that one side gets of ``rows`` rows in a row: a floor of a line of slope s grows by ceil(s * rows)."""
    _, _, offset, slope = rule
    if offset in (_NEVER, _ALWAYS):
        return rows if left == (offset == _ALWAYS) else 0
    # The slope is rounded down by less than 2^-64, which the ceiling of the other side has to make up for.
    return -(-rows * slope >> FRACTION_BITS) if left else -(-rows * (ONE - slope) >> FRACTION_BITS)
