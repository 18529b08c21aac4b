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
   what tells strings apart, and a piece that is common in a small language does not pass for a rare one. With
   ``sif`` = a it is a / (a + that share): the smooth inverse frequency of Arora et al. (2017), which takes
   frequent pieces further down.

Texts are worked on a block at a time (`xlm.model.aligned_strings`, `aligned_matrix`, `streamed_svd`), so memory is about
twice the table in fp32, whatever the number of strings; these lie in files meanwhile: 4 bytes a token and 8 for each
piece of a text. Runs without torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from xlm.errors import UserError
from xlm.model.aligned_matrix import PieceStrings, WeightedMatrix, build
from xlm.model.aligned_strings import PairBlock, StringParts
from xlm.model.streamed_svd import Floats, left_singular_vectors, random_panels
from xlm.runs.permissions import as_other_files
from xlm.runs.progress import Progress
from xlm.seeding import keyed_generator

FILE = "aligned.safetensors"
TENSOR = "token_embeddings"
VOCABULARY_KEY = "vocabulary"

# One power iteration and 32 more vectors than asked for (Halko et al. 2011): more iterations cost time
# and retrieved slightly worse.
POWER_ITERATIONS = 1
OVERSAMPLING = 32
# Rows of pieces without a single aligned string are noise of this share of the others' size.
UNSEEN_SHARE = 0.1
# Tokens that are sorted and made a block of columns at a time: some 200 MB.
PART_TOKENS = 1 << 21
_ROWS = 8192


@dataclass(frozen=True)
class AlignedEmbeddings:
    """The table, and what it was made of."""

    table: Floats  # [vocabulary, width]
    aligned_strings: int
    strings: int
    empty_strings: int
    unseen_pieces: int


def aligned_embeddings(
    corpora: Mapping[str, Iterable[PairBlock]],
    vocabulary_size: int,
    width: int,
    *,
    tokens: int,
    scratch: Path,
    rms: float,
    power: float = 0.0,
    sif: float | None = None,
    seed: int = 0,
    part_tokens: int = PART_TOKENS,
) -> AlignedEmbeddings:
    """Compute embeddings [vocabulary_size, width] whose seen rows have a root mean square of ``rms``.

    ``corpora`` maps a pair corpus's name (``en_de``) to its pairs, read once; they have about ``tokens`` pieces. Files are
    made and removed below the folder ``scratch``. Deterministic. Raises UserError when there are fewer aligned strings or
    pieces than dimensions.
    """
    with TemporaryDirectory(dir=scratch, prefix=".aligned-") as folder:
        parts = StringParts(Path(folder) / "strings", 1 + tokens // part_tokens)
        for name, blocks in corpora.items():
            for block in blocks:
                parts.add(name, block)
        matrix = WeightedMatrix(Path(folder) / "columns", vocabulary_size)
        counts = PieceStrings(vocabulary_size, len(parts.languages))
        build(parts.read(), matrix, counts)
        rarity = counts.rarity(sif)
        seen = int(np.count_nonzero(rarity))
        if min(seen, matrix.columns) < width:
            raise UserError(
                f"{matrix.columns:,} aligned strings with {seen:,} different pieces cannot fill {width} dimensions; "
                "add pair corpora, or set embeddings.kind to random."
            )
        table = _decomposed(matrix, vocabulary_size, width, power, seed)
    _set_lengths(table, rarity, rms)
    _fill_unseen(table, rarity == 0.0, UNSEEN_SHARE * rms, seed)
    return AlignedEmbeddings(table, matrix.columns, counts.strings, parts.empty, vocabulary_size - seen)


def _decomposed(matrix: WeightedMatrix, rows: int, width: int, power: float, seed: int) -> Floats:
    """Return U S^power, [rows, width]."""
    start = random_panels(keyed_generator("aligned", seed), rows, min(width + OVERSAMPLING, rows))
    with Progress("embeddings: decomposition", total=matrix.blocks * (POWER_ITERATIONS + 1), unit="blocks") as progress:
        table, singular = left_singular_vectors(
            lambda panels: matrix.gram_product(panels, progress.advance), start, width, POWER_ITERATIONS
        )
    if power:
        table *= (singular**power).astype(np.float32)
    return table


def _set_lengths(table: Floats, lengths: npt.NDArray[np.float32], rms: float) -> None:
    """Scale rows to these lengths [vocabulary], then all alike so that seen rows have a root mean square of ``rms``; in place."""
    scale = lengths / np.maximum(_lengths(table), 1e-12)
    table *= scale[:, None]
    squares = float(np.sum(_lengths(table) ** 2)) / (int(np.count_nonzero(lengths)) * table.shape[1])
    table *= np.float32(rms / np.sqrt(squares))


def _lengths(table: Floats) -> npt.NDArray[np.float64]:
    """Return the length of each row, without a second table."""
    lengths: npt.NDArray[np.float64] = np.sqrt(np.einsum("ij,ij->i", table, table, dtype=np.float64))
    return lengths


def _fill_unseen(table: Floats, unseen: npt.NDArray[np.bool_], scale: float, seed: int) -> None:
    generator = keyed_generator("aligned-unseen", seed)
    rows = np.flatnonzero(unseen)
    for first in range(0, len(rows), _ROWS):
        some = rows[first : first + _ROWS]
        table[some] = generator.normal(0.0, scale, (len(some), table.shape[1]))


def save_aligned(folder: Path, table: Floats, vocabulary_fingerprint: str) -> None:
    """Write ``aligned.safetensors`` (docs/formats.md)."""
    save_file({TENSOR: np.ascontiguousarray(table)}, folder / FILE, metadata={VOCABULARY_KEY: vocabulary_fingerprint})
    as_other_files(folder / FILE)


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
