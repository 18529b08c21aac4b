"""Initial token embeddings in which translations already meet: an SVD of pieces x aligned strings.

A column is one source text with all its translations, whatever their languages, each once; pieces that occur in the
same columns get similar rows. Averaging the rows of a sentence's pieces is then, before any training,
a usable cross-lingual sentence vector, and a few million tokens of training start from there. Latent
semantic indexing across languages is Dumais et al. (1997); the weighting was chosen by retrieval on
held-out pairs (benchmarks/NOTES.md):

1. a string spreads a mass of 1 over its pieces, so that long strings and languages with many pieces a
   word count no more than others;
2. a column is scaled to length 1, so that a text translated into many languages counts once;
3. a row is divided by the square root of its length, so that frequent pieces and the languages with most
   text do not take all the dimensions;
4. the left singular vectors U S^power become rows of length rarity(piece) = min over languages of
   log(1 + strings of the language / its strings with the piece): a mean over pieces is then weighted by
   what tells strings apart, and a piece that is common in a small language does not pass for a rare one.

Runs without torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from scipy import sparse
from sklearn.utils.extmath import randomized_svd

from xlm.corpora.documents import split_pair_name
from xlm.errors import UserError
from xlm.seeding import key_int64, keyed_generator

FILE = "aligned.safetensors"
TENSOR = "token_embeddings"
VOCABULARY_KEY = "vocabulary"

# One power iteration and 32 more vectors than asked for (Halko et al. 2011): more iterations cost time
# and retrieved slightly worse.
POWER_ITERATIONS = 1
OVERSAMPLING = 32
# Rows of pieces without a single aligned string are noise of this share of the others' size.
UNSEEN_SHARE = 0.1

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Ids = npt.NDArray[np.integer]
Pair = tuple[str, Ids, Ids]


@dataclass(frozen=True)
class AlignedEmbeddings:
    """The table, and what it was made of."""

    table: Floats  # [vocabulary, width]
    aligned_strings: int
    strings: int
    empty_strings: int
    unseen_pieces: int


@dataclass(frozen=True)
class _Strings:
    """All strings laid end to end."""

    pieces: Integers  # [tokens]
    string: Integers  # [tokens], index of the string
    column: Integers  # [strings]
    language: Integers  # [strings]
    columns: int
    languages: int
    empty: int


def aligned_embeddings(
    corpora: Mapping[str, Iterable[Pair]], vocabulary_size: int, width: int, *, rms: float, power: float = 0.0, seed: int = 0
) -> AlignedEmbeddings:
    """Compute embeddings [vocabulary_size, width] whose seen rows have a root mean square of ``rms``.

    ``corpora`` maps a pair corpus's name (``en_de``) to its (key, source ids, target ids). Deterministic.
    Raises UserError when there are fewer aligned strings or pieces than dimensions.
    """
    strings = _collect(corpora)
    occurrences = _occurrences(strings, vocabulary_size)
    seen = np.flatnonzero(occurrences.count_nonzero(axis=1))
    if min(len(seen), strings.columns) < width:
        raise UserError(
            f"{strings.columns:,} aligned strings with {len(seen):,} different pieces cannot fill {width} dimensions; "
            "add pair corpora, or set embeddings.kind to random."
        )
    matrix = _weighted(occurrences, strings)[seen]
    left, singular, _ = randomized_svd(
        matrix, width, n_oversamples=OVERSAMPLING, n_iter=POWER_ITERATIONS, random_state=key_int64("aligned", seed) % 2**32
    )
    rows = left * singular**power
    rows *= (_rarity(occurrences, strings)[seen] / np.maximum(np.linalg.norm(rows, axis=1), 1e-12))[:, None]
    rows *= rms / np.sqrt(np.mean(rows**2))
    table = keyed_generator("aligned-unseen", seed).normal(0.0, UNSEEN_SHARE * rms, (vocabulary_size, width)).astype(np.float32)
    table[seen] = rows
    return AlignedEmbeddings(
        table=table,
        aligned_strings=strings.columns,
        strings=len(strings.column),
        empty_strings=strings.empty,
        unseen_pieces=vocabulary_size - len(seen),
    )


def _collect(corpora: Mapping[str, Iterable[Pair]]) -> _Strings:
    columns: dict[str, int] = {}
    languages: dict[str, int] = {}
    known: set[tuple[int, int, bytes]] = set()
    ids: list[Ids] = []
    column: list[int] = []
    language: list[int] = []
    empty = 0
    for name, pairs in corpora.items():
        sides = [languages.setdefault(tag, len(languages)) for tag in split_pair_name(name)]
        for key, *texts in pairs:
            number = columns.setdefault(key, len(columns))
            for side, text in zip(sides, texts, strict=True):
                if len(text) == 0:
                    empty += 1
                    continue
                # A string stands in every corpus that pairs it with another, and counts once.
                string = (side, number, text.tobytes())
                if string in known:
                    continue
                known.add(string)
                ids.append(text)
                column.append(number)
                language.append(side)
    lengths = np.array([len(text) for text in ids], dtype=np.int64)
    return _Strings(
        pieces=np.concatenate(ids).astype(np.int64) if ids else np.empty(0, dtype=np.int64),
        string=np.repeat(np.arange(len(ids)), lengths),
        column=np.array(column, dtype=np.int64),
        language=np.array(language, dtype=np.int64),
        columns=len(columns),
        languages=len(languages),
        empty=empty,
    )


def _occurrences(strings: _Strings, vocabulary_size: int) -> sparse.csr_array:
    """Count pieces in strings, [vocabulary, strings]."""
    shape = (vocabulary_size, len(strings.column))
    return sparse.coo_array((np.ones(len(strings.pieces), dtype=np.float32), (strings.pieces, strings.string)), shape=shape).tocsr()


def _weighted(occurrences: sparse.csr_array, strings: _Strings) -> sparse.csr_array:
    """Apply steps 1-3 of the module's description, [vocabulary, columns]."""
    lengths = np.asarray(occurrences.sum(axis=0)).ravel()
    spread = sparse.coo_array(
        (1.0 / lengths.astype(np.float32), (np.arange(len(lengths)), strings.column)), shape=(len(lengths), strings.columns)
    )
    matrix = (occurrences @ spread.tocsr()).tocsr()
    matrix = (matrix @ sparse.diags_array(1.0 / _norms(matrix, axis=0))).tocsr()
    return (sparse.diags_array(1.0 / np.sqrt(_norms(matrix, axis=1))) @ matrix).tocsr().astype(np.float32)


def _norms(matrix: sparse.csr_array, axis: int) -> Floats:
    norms: Floats = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=axis)).ravel()).astype(np.float32)
    return np.maximum(norms, np.float32(1e-12))


def _rarity(occurrences: sparse.csr_array, strings: _Strings) -> Floats:
    """Apply the weight of step 4, [vocabulary]; infinite for pieces that never occur."""
    in_language = sparse.coo_array(
        (np.ones(len(strings.language), dtype=np.float32), (np.arange(len(strings.language)), strings.language)),
        shape=(len(strings.language), strings.languages),
    ).tocsr()
    present = occurrences.copy()
    present.data = np.ones_like(present.data)
    with np.errstate(divide="ignore"):
        inverse_share = np.asarray(in_language.sum(axis=0)).ravel() / (present @ in_language).toarray()
    rarity: Floats = np.log1p(inverse_share.min(axis=1)).astype(np.float32)
    return rarity


def save_aligned(folder: Path, table: Floats, vocabulary_fingerprint: str) -> None:
    """Write ``aligned.safetensors`` (docs/formats.md)."""
    save_file({TENSOR: np.ascontiguousarray(table)}, folder / FILE, metadata={VOCABULARY_KEY: vocabulary_fingerprint})


def load_aligned(folder: Path, vocabulary_fingerprint: str) -> Floats:
    """Read the table [vocabulary, width]; raises UserError where it is missing, damaged or of another vocabulary."""
    path = folder / FILE
    try:
        with safe_open(path, framework="numpy") as stored:
            found = (stored.metadata() or {}).get(VOCABULARY_KEY, "")
            table: Floats = stored.get_tensor(TENSOR)
    except FileNotFoundError:
        raise UserError("there are no aligned embeddings here; run pipelines/init_embeddings.py first.", file=path) from None
    except (SafetensorError, OSError):
        raise UserError(
            "these aligned embeddings are damaged; delete their folder and run pipelines/init_embeddings.py again.", file=path
        ) from None
    if found != vocabulary_fingerprint:
        raise UserError(
            f"these embeddings were made for vocabulary {found}, but the vocabulary in use is {vocabulary_fingerprint}; "
            "run pipelines/init_embeddings.py again.",
            file=path,
        )
    return table
