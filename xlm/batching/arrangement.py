"""How the texts of rows stand in sequences, and the one function that lays any such arrangement out.

A sequence is a run of stretches, and a stretch is a text with ``</s>`` after it, unless its arrangement leaves that
out, and, where its arrangement says so, one special piece before it. All objectives are such runs:

    <s> text </s>                        one stretch
    <s> text text </s>                   the first is opened, the last closed
    <s> text </s> text </s> text </s>    only the first stretch is opened
    </s> source </s> </s> target </s>    both are
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xlm.batching.packed_rows import Ids, starts_of, sums_by_row
from xlm.batching.texts import RowTexts


@dataclass(frozen=True, slots=True)
class Arrangement:
    """N stretches in S sequences in R rows."""

    texts: Ids  # [N], the text of each stretch: its segment, plus the number of segments for the second side
    opened: NDArray[np.bool_]  # [N], whether a special piece stands before the text
    opening_id: int  # that piece
    stretches_per_sequence: Ids  # [S]
    sequences_per_row: Ids  # [R]
    token_types: Ids | None = None  # [N]; None: 0 everywhere
    closed: NDArray[np.bool_] | None = None  # [N], whether </s> stands after the text; None: everywhere
    positions_restart: bool = False  # in every stretch, not only in every sequence
    sequence_labels: Ids | None = None  # [S]; None: there are none


@dataclass(frozen=True, slots=True)
class Sequences:
    """Sequences end to end, nothing masked."""

    ids: Ids  # [T]
    positions: Ids  # [T]
    token_types: Ids  # [T]
    languages: Ids  # [T]
    lengths: Ids  # [S]


def lay_out(arrangement: Arrangement, texts: RowTexts, *, eos_id: int) -> Sequences:
    """Lay out the texts of rows, one row at least."""
    closed = arrangement.closed
    widths = texts.lengths.ravel()[arrangement.texts] + (1 if closed is None else closed)
    widths += arrangement.opened
    ends = widths.cumsum()
    starts = ends - widths
    places = np.arange(ends[-1])
    # From where each place takes its piece; what special pieces take is overwritten.
    source = (texts.starts.ravel()[arrangement.texts] - arrangement.opened - starts).repeat(widths)
    source += places
    ids: Ids = texts.pieces.take(source, mode="clip").astype(np.int64) if texts.pieces.size else np.empty_like(source)
    ids[starts[arrangement.opened]] = arrangement.opening_id
    ids[(ends if closed is None else ends[closed]) - 1] = eos_id
    one_each = arrangement.stretches_per_sequence.size == widths.size
    lengths = widths if one_each else sums_by_row(widths, arrangement.stretches_per_sequence)
    counted = widths if arrangement.positions_restart else lengths
    places -= starts_of(counted).repeat(counted)
    return Sequences(
        ids=ids,
        positions=places,
        token_types=np.zeros_like(ids) if arrangement.token_types is None else arrangement.token_types.repeat(widths),
        languages=texts.languages.ravel()[arrangement.texts].repeat(widths),
        lengths=lengths,
    )
