"""Made-up rows to mask, and what is asked of each way to mask them."""

from types import SimpleNamespace

import numpy as np
from hypothesis import strategies as st

from xlm.batching.keyed_words import row_seeds
from xlm.batching.masking import Masker
from xlm.config.phases import MaskingSection

SPECIALS = (0, 1, 2, 3, 4)
SIZE = 300
MASK = 4
SELECTIONS = ("token", "whole_word", "span", "frequency")

# How likely a right masker was to fail a statistical test on the day it was written: keys are fixed, nothing is drawn anew.
ALPHA = 1e-6


def pieces_of(size=SIZE, specials=SPECIALS):
    """A vocabulary in which every third piece begins a word."""
    return SimpleNamespace(size=size, special_ids=specials, bos_id=2, eos_id=3, mask_id=MASK, is_word_start=np.arange(size) % 3 == 0)


def masker_of(selection="token", *, size=SIZE, specials=SPECIALS, **options):
    counts = np.arange(size).astype(np.uint64) ** np.uint64(2)
    return Masker(pieces_of(size, specials), MaskingSection(selection=selection, **options), counts)


def seeds_of(count, first=0):
    return row_seeds(np.full(count, 99, dtype=np.uint64), np.arange(first, first + count))


def mask_rows(masker, rows, rate, seeds=None, **options):
    """Mask rows that come as arrays of ids."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    ids = np.concatenate([*rows, np.empty(0, dtype=np.int64)]).astype(np.int64)
    return masker.mask(ids, lengths, rate, seeds_of(len(rows)) if seeds is None else seeds, **options)


def words_of(row, spaced):
    """Split a row into words, each a list of places, by the rule as it is written."""
    found = []
    for place, piece in enumerate(row.tolist()):
        if piece in SPECIALS:
            continue
        first = place == 0 or row[place - 1] in SPECIALS
        if first or piece % 3 == 0 or not spaced[place]:
            found.append([])
        found[-1].append(place)
    return found


rows_of_ids = st.lists(st.lists(st.integers(0, 40), max_size=60).map(lambda ids: np.array(ids, dtype=np.int64)), min_size=1, max_size=6)
rates = st.floats(0.01, 0.99)
