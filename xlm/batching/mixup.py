"""Which pairs of a contrastive row are joined: InfoXLM's mixup contrast (Chi et al. 2021, section 3.3) inside a row.

A pair is joined with the next one of its row, both sides in the same order, so that the encoder learns sentences of
which another stands beside. InfoXLM takes the other pair from another corpus; here it is of the same one, whose
languages are the row's, and rows stay as long as they were planned.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xlm.batching.keyed_words import MIXUP, Words, uniforms_of, words
from xlm.batching.packed_rows import Ids

_ORDER_BIT = np.uint64(1)  # `uniforms_of` does not read it


def units(seeds: Words, pairs_per_row: Ids, probability: float) -> tuple[Ids, Ids]:
    """Return the pairs of each unit in their order, [U, 2] with -1 where a pair stands alone, and units per row, [R].

    Going through a row, a pair that is not taken yet is joined with the next with this probability, unless it is the
    row's last; which of the two comes first is a fair coin. ``seeds`` are the rows', [R].
    """
    drawn = words(seeds, pairs_per_row, MIXUP)
    wants = uniforms_of(drawn) < probability
    wants[pairs_per_row[pairs_per_row > 0].cumsum() - 1] = False
    joined = wants & (_place_in_run(wants) % 2 == 0)  # of a run that all want the next, every second one gets it
    taken = np.zeros_like(joined)
    taken[1:] = joined[:-1]
    firsts = np.flatnonzero(~taken)
    pairs = np.stack([firsts, np.where(joined[firsts], firsts + 1, -1)], axis=1)
    turned = joined[firsts] & ((drawn[firsts] & _ORDER_BIT) == _ORDER_BIT)
    pairs[turned] = pairs[turned, ::-1]
    rows = np.repeat(np.arange(pairs_per_row.size), pairs_per_row)[firsts]
    return pairs, np.bincount(rows, minlength=pairs_per_row.size)


def _place_in_run(flags: NDArray[np.bool_]) -> Ids:
    """Count from 0 inside each run of true values, [n]."""
    places = np.arange(flags.size)
    last_false = np.maximum.accumulate(np.where(flags, -1, places)) if flags.size else places
    return places - last_false - 1
