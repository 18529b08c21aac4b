"""The weighted matrix of pieces x texts, a block of texts at a time: built once, kept in files, multiplied block by block."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from scipy import sparse

from xlm.model.aligned_strings import Strings
from xlm.model.streamed_svd import Doubles, Floats, Panels
from xlm.runs.cores import usable_cores

_PARTS = ("data", "indices", "indptr")


class WeightedMatrix:
    """Steps 1-3 of `xlm.model.aligned`: A [vocabulary, texts], whose blocks of whole columns lie below ``folder``."""

    def __init__(self, folder: Path, vocabulary_size: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._squares: Doubles = np.zeros(vocabulary_size)  # of the rows' lengths before step 3
        self.columns = 0
        self.blocks = 0

    def add(self, strings: Strings) -> None:
        """Append the columns of some texts."""
        columns = columns_of_length_one(strings, len(self._squares))
        self._squares += np.bincount(columns.indices, weights=columns.data.astype(np.float64) ** 2, minlength=len(self._squares))
        for part in _PARTS:
            np.save(self._file(self.blocks, part), getattr(columns, part))
        self.columns += strings.columns
        self.blocks += 1

    @property
    def row_scale(self) -> Floats:
        """What step 3 multiplies the rows by, [vocabulary]; 0 where a row is empty."""
        lengths = np.sqrt(self._squares)
        scale = np.where(lengths > 0, 1.0 / np.sqrt(np.maximum(lengths, np.finfo(np.float64).tiny)), 0.0)
        return scale.astype(np.float32)

    def transposed_blocks(self) -> Iterator[sparse.csr_array]:
        """Yield the blocks of A^T, [texts of the block, vocabulary]."""
        scale = self.row_scale
        for number in range(self.blocks):
            data, indices, indptr = (np.load(self._file(number, part)) for part in _PARTS)
            yield sparse.csr_array((data * scale[indices], indices, indptr), shape=(len(indptr) - 1, len(scale)))

    def gram_product(self, panels: Panels, after_block: Callable[[], None] = lambda: None) -> Panels:
        """Return A A^T Q for the panels of Q [vocabulary, k]; panels side by side on the cores there are."""
        results = [np.zeros_like(panel) for panel in panels]

        def add(block: sparse.csr_array, number: int) -> None:
            results[number] += block.T @ (block @ panels[number])

        with ThreadPoolExecutor(_threads()) as threads:
            for block in self.transposed_blocks():
                list(threads.map(add, [block] * len(panels), range(len(panels))))
                after_block()
        return results

    def _file(self, block: int, part: str) -> Path:
        return self._folder / f"columns-{block}-{part}.npy"


class PieceStrings:
    """In how many strings of each language each piece is."""

    def __init__(self, vocabulary_size: int, languages: int) -> None:
        self._strings = np.zeros(languages, dtype=np.int64)
        # Sparse: with 2,000 languages most pieces are in few of them.
        self._with_piece = sparse.csr_array((vocabulary_size, languages), dtype=np.int64)

    def add(self, strings: Strings) -> None:
        """Count some distinct strings."""
        self._strings += np.bincount(strings.language, minlength=len(self._strings))
        of_string = np.repeat(np.arange(len(strings.lengths)), strings.lengths)
        vocabulary_size = self._with_piece.shape[0]
        string, piece = np.divmod(np.unique(of_string * vocabulary_size + strings.pieces), vocabulary_size)
        ones = np.ones(len(piece), dtype=np.int64)
        self._with_piece = self._with_piece + sparse.coo_array((ones, (piece, strings.language[string])), self._with_piece.shape).tocsr()

    @property
    def strings(self) -> int:
        """Number of distinct strings."""
        return int(self._strings.sum())

    def rarity(self, sif: float | None = None) -> Floats:
        """Return the weight of step 4, [vocabulary], by the largest share s of a language's strings that have the piece; 0 for none.

        It is log(1 + 1 / s), or with ``sif`` = a the smooth inverse frequency a / (a + s).
        """
        counts = self._with_piece
        share = counts.data / self._strings[counts.indices]
        largest = np.zeros(counts.shape[0])
        np.maximum.at(largest, np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr)), share)
        seen = largest > 0
        present = np.where(seen, largest, 1.0)
        weight = np.log1p(1.0 / present) if sif is None else sif / (sif + present)
        return np.where(seen, weight, 0.0).astype(np.float32)


def columns_of_length_one(strings: Strings, vocabulary_size: int) -> sparse.csr_array:
    """Return steps 1 and 2: a string's mass of 1 over its pieces, summed over a text's strings, scaled to length 1; [texts, vocabulary]."""
    mass = np.repeat((1.0 / strings.lengths).astype(np.float32), strings.lengths)
    column = np.repeat(strings.column, strings.lengths)
    shape = (strings.columns, vocabulary_size)
    matrix = sparse.coo_array((mass, (column.astype(np.int32), strings.pieces.astype(np.int32))), shape).tocsr()
    lengths = np.sqrt(np.add.reduceat(matrix.data.astype(np.float64) ** 2, matrix.indptr[:-1]))
    matrix.data /= np.repeat(lengths, np.diff(matrix.indptr)).astype(np.float32)
    return matrix


def build(parts: Iterable[Strings], matrix: WeightedMatrix, counts: PieceStrings) -> None:
    """Add all strings to both."""
    for strings in parts:
        matrix.add(strings)
        counts.add(strings)


def _threads() -> int:
    cores = usable_cores()
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(asked)) if asked.isdigit() and int(asked) else cores
