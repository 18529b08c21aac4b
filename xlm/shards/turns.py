"""Whose turn it is: which languages of an n-way parallel text are paired in a variant.

A text in m languages has m (m - 1) / 2 pairs, but a variant takes only a perfect matching of its languages, so that every
translation is seen once. Matchings come from the circle method of round-robin tournaments (Kirkman 1847): with n = m, or
m + 1 where m is odd, players x, y < n - 1 meet in round (x + y) mod (n - 1), and x meets n - 1 in round 2x mod (n - 1). Over
n - 1 variants every two languages meet once. With m odd the last player is nobody, and whoever meets them sits out. Each
text begins at a round of its own, so that no variant has all texts in the same two languages.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]


def turns(languages: Array, first: Array, second: Array, keys: Keys, seed: int) -> npt.NDArray[np.uint16]:
    """Return (rounds, turn) of pairs, [pairs, 2]: a pair takes part in the variants v with v mod rounds = turn.

    ``languages`` [pairs] is in how many languages the text of a pair is, ``first`` and ``second`` the places of the pair's
    languages among them, and ``keys`` what texts, with ``seed`` (64 bits), draw their first round by.
    """
    rounds = np.maximum(languages + languages % 2 - 1, 1)
    early, late = np.minimum(first, second), np.maximum(first, second)
    meet = np.where(late == rounds, 2 * early, early + late) % rounds
    begin = (_mixed(keys ^ np.uint64(seed)) % rounds.astype(np.uint64)).astype(np.int64)
    return np.stack([rounds, (meet - begin) % rounds], axis=1).astype(np.uint16)


def takes_part(turns: npt.NDArray[np.uint16], variant: int) -> npt.NDArray[np.bool_]:
    """Return which pairs [pairs] a variant takes, given their turns [pairs, 2]."""
    mine: npt.NDArray[np.bool_] = variant % turns[:, 0] == turns[:, 1]
    return mine


def is_shown(turns: npt.NDArray[np.uint16], variants: int) -> npt.NDArray[np.bool_]:
    """Return which pairs [pairs] any of the first ``variants`` variants takes, given their turns [pairs, 2]."""
    shown: npt.NDArray[np.bool_] = turns[:, 1] < variants
    return shown


def read_turns(path: Path, first_item: int, items: int) -> npt.NDArray[np.uint16]:
    """Return the turns [items, 2] of a stretch of a corpus's items; nothing else of the file is read."""
    return np.array(np.load(path, mmap_mode="r")[first_item : first_item + items])


def _mixed(words: Keys) -> Keys:
    """Scramble 64-bit words: the finaliser of SplitMix64 (Steele, Lea & Flood 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
