"""Which texts must not be trained on, known by hashes alone.

A text is held out when its folded form is that of an evaluation text, or when the Jaccard similarity
of the two sets of character 5-grams is at least .8. Candidates come from MinHash bands (Broder 1997;
Leskovec, Rajaraman & Ullman, "Mining of Massive Datasets", 3.4): with 24 bands of 4 a pair at .8 is
missed with probability (1 - .8^4)^24 = 3e-6. Candidates are then verified exactly, on the signatures,
which here are the whole sets of 48-bit gram hashes: evaluation texts are short, so that the complete
set is no larger than a MinHash sketch would be, and no estimate stands between a test sentence and
the training data. The file holds these hashes and no text.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xlm.corpora.fold import fold
from xlm.corpora.grams import GRAM_SIZE, GramSets, gram_sets, minhash_bands
from xlm.errors import UserError
from xlm.runs.fingerprint import fingerprint
from xlm.seeding import key_digest

JACCARD = 0.8
EXACT, NEAR = 1, 2
FORMAT_VERSION = 1
_CHUNK_TEXTS = 20_000
_ARRAYS = ("exact", "band_hashes", "band_owners", "gram_hashes", "gram_offsets")
_KNOWN_BITS = 24
_KNOWN_MASK = np.uint64((1 << _KNOWN_BITS) - 1)

Array = NDArray[np.uint64]


class HeldOutText:
    """A set of evaluation texts that can say whether a text is in it, or nearly so."""

    def __init__(self, exact: Array, band_hashes: Array, band_owners: NDArray[np.int64], grams: GramSets) -> None:
        self._exact = exact  # [E] sorted hashes of folded texts
        self._band_hashes = band_hashes  # [E * bands] sorted
        self._band_owners = band_owners  # [E * bands] which text each band hash belongs to
        self._grams = grams
        self._known = np.zeros(1 << _KNOWN_BITS, dtype=np.bool_)
        self._known[(grams.hashes & _KNOWN_MASK).astype(np.int64)] = True

    @classmethod
    def build(cls, texts: Iterable[str]) -> HeldOutText:
        """Hash ``texts``; texts that fold to nothing cannot be matched and are left out."""
        by_hash = {_exact_hash(folded): folded for folded in map(fold, texts) if folded}
        exact = np.array(sorted(by_hash), dtype=np.uint64)
        grams = gram_sets([by_hash[int(value)] for value in exact])
        bands = minhash_bands(grams)
        owners = np.repeat(np.arange(len(exact), dtype=np.int64), bands.shape[1])
        flat = bands.reshape(-1)
        order = np.argsort(flat, kind="stable")
        return cls(exact, flat[order], owners[order], grams)

    def __len__(self) -> int:
        """Return the number of distinct folded texts."""
        return len(self._exact)

    @property
    def fingerprint(self) -> str:
        """Return a short hash of the set of texts."""
        return fingerprint([FORMAT_VERSION, GRAM_SIZE, JACCARD, self._exact.tobytes().hex()])

    def matches(self, texts: Sequence[str]) -> NDArray[np.uint8]:
        """Return [len(texts)] codes: 0 not held out, 1 the same folded text, 2 a near-duplicate (Jaccard >= .8)."""
        codes = np.zeros(len(texts), dtype=np.uint8)
        if len(self) == 0:
            return codes
        for start in range(0, len(texts), _CHUNK_TEXTS):
            folded = [fold(text) for text in texts[start : start + _CHUNK_TEXTS]]
            codes[start : start + len(folded)] = self._match_folded(folded)
        return codes

    def _match_folded(self, folded: list[str]) -> NDArray[np.uint8]:
        codes = np.zeros(len(folded), dtype=np.uint8)
        hashes = np.array([_exact_hash(text) for text in folded], dtype=np.uint64)
        where = np.minimum(np.searchsorted(self._exact, hashes), len(self._exact) - 1)
        filled = np.array([bool(text) for text in folded], dtype=np.bool_)
        exact = (self._exact[where] == hashes) & filled
        codes[exact] = EXACT
        rest = np.flatnonzero(filled & ~exact)
        if len(rest) == 0:
            return codes
        grams = gram_sets([folded[index] for index in rest])
        # |x & y| >= .8 |x | y| >= .8 |x| can only hold where .8 of x's grams occur in some held-out text.
        known = self._known[(grams.hashes & _KNOWN_MASK).astype(np.int64)]
        share = np.add.reduceat(known.astype(np.int64), grams.offsets[:-1]) / grams.sizes
        possible = np.flatnonzero(share >= JACCARD)
        if len(possible):
            near = self._near(grams.take(possible))
            codes[rest[possible[near]]] = NEAR
        return codes

    def _near(self, queries: GramSets) -> NDArray[np.bool_]:
        """Return [queries] whether a held-out text has Jaccard similarity >= .8."""
        bands = minhash_bands(queries)
        first = np.searchsorted(self._band_hashes, bands, side="left")
        last = np.searchsorted(self._band_hashes, bands, side="right")
        result = np.zeros(len(queries), dtype=np.bool_)
        for query in np.flatnonzero((last > first).any(axis=1)):
            spans = [self._band_owners[a:b] for a, b in zip(first[query], last[query], strict=True) if b > a]
            candidates = np.unique(np.concatenate(spans))
            result[query] = self._verify(queries.set_of(int(query)), candidates)
        return result

    def _verify(self, query: Array, candidates: NDArray[np.int64]) -> bool:
        """Return whether one of the candidates has Jaccard similarity >= .8 with the sorted set ``query``."""
        sizes = self._grams.sizes[candidates]
        candidates = candidates[np.minimum(sizes, len(query)) >= JACCARD * np.maximum(sizes, len(query))]
        if len(candidates) == 0:
            return False
        chosen = self._grams.take(candidates)
        position = np.minimum(np.searchsorted(query, chosen.hashes), len(query) - 1)
        shared = np.add.reduceat((query[position] == chosen.hashes).astype(np.int64), chosen.offsets[:-1])
        union = chosen.sizes + len(query) - shared
        # In whole numbers, so that a similarity of exactly .8 counts: 5 shared >= 4 union.
        return bool((5 * shared >= 4 * union).any())

    def save(self, path: Path) -> None:
        """Write the hashes as an uncompressed ``.npz`` (hashes do not compress)."""
        with path.open("wb") as stream:
            np.savez(
                stream,
                format_version=np.int64(FORMAT_VERSION),
                exact=self._exact,
                band_hashes=self._band_hashes,
                band_owners=self._band_owners,
                gram_hashes=self._grams.hashes,
                gram_offsets=self._grams.offsets,
            )

    @classmethod
    def load(cls, path: Path) -> HeldOutText:
        """Read what `save` wrote; a UserError for a file that is missing, damaged or of another version."""
        try:
            with np.load(path, allow_pickle=False) as data:
                version = int(data["format_version"])
                exact, band_hashes, band_owners, hashes, offsets = (data[name] for name in _ARRAYS)
        except FileNotFoundError:
            raise UserError("there is no hash file of held-out text here; run pipelines/build_tasks.py first.", file=path) from None
        except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile):
            raise UserError("this file of held-out hashes is damaged; run pipelines/build_tasks.py again.", file=path) from None
        if version != FORMAT_VERSION:
            raise UserError(
                f"these held-out hashes have format version {version}, this code reads {FORMAT_VERSION}; "
                "run pipelines/build_tasks.py again.",
                file=path,
            )
        return cls(exact, band_hashes, band_owners, GramSets(hashes, offsets))


def _exact_hash(folded: str) -> int:
    return int.from_bytes(key_digest("held-out", folded, size_bytes=8), "little")
