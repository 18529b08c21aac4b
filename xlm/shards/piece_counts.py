"""How often each piece occurs in the shards: what frequency-weighted masking draws by (XLM's `sample_alpha`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from xlm.shards.format import FileFacts
from xlm.shards.index import PieceCountsFile
from xlm.shards.reader import Tokens

PIECE_COUNTS_FILE = "piece_counts.npy"
# np.bincount works on a copy of eight bytes a token.
_CHUNK_TOKENS = 1 << 22

Counts = npt.NDArray[np.uint64]


def count_pieces(tokens: Iterable[Tokens], vocabulary_size: int) -> Counts:
    """Return the occurrences [vocabulary] of each piece in flat arrays of tokens."""
    counts = np.zeros(vocabulary_size, dtype=np.uint64)
    for flat in tokens:
        for start in range(0, len(flat), _CHUNK_TOKENS):
            counts += np.bincount(flat[start : start + _CHUNK_TOKENS], minlength=vocabulary_size).astype(np.uint64)
    return counts


def save_piece_counts(folder: Path, counts: Counts) -> PieceCountsFile:
    """Write the counts of all shards into a shards folder and return what the index says of the file."""
    path = folder / PIECE_COUNTS_FILE
    np.save(path, counts)
    facts = FileFacts.of(path)
    return PieceCountsFile(PIECE_COUNTS_FILE, facts.size_bytes, facts.sha256)
