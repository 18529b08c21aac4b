"""Left singular vectors of a matrix A [rows, columns] that is never held: only products A A^T Q are asked for.

The randomised range finder of Halko, Martinsson & Tropp (2011, algorithms 4.4 and 5.5): an orthonormal basis Q
[rows, k] is carried through power iterations, and A A^T is taken to be its Nyström approximation
(A A^T Q) (Q^T A A^T Q)^-1 (A A^T Q)^T. That is the decomposition of A on the span of A^T Q, which is what the usual
two-sided form computes with a basis [columns, k]; here nothing grows with the number of columns. Memory: two
matrices [rows, k] in fp32, and small ones [k, k] in fp64.

Matrices [rows, k] are lists of panels of at most `PANEL` columns, so that products of panels can run side by side and
give the same numbers whatever their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

PANEL = 64
_ROWS = 8192
# What is this much smaller than the largest is the rounding of fp32: of eigenvalues of a Gram matrix, and of A A^T.
_LEAST_SQUARED_LENGTH = 1e-12
_LEAST_EIGENVALUE = 1e-7

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Panels = list[Floats]


def random_panels(generator: np.random.Generator, rows: int, columns: int) -> Panels:
    """Draw normal numbers [rows, columns]."""
    widths = [min(PANEL, columns - first) for first in range(0, columns, PANEL)]
    return [generator.standard_normal((rows, width), dtype=np.float32) for width in widths]


def left_singular_vectors(product: Callable[[Panels], Panels], start: Panels, rank: int, power_iterations: int) -> tuple[Floats, Doubles]:
    """Return vectors [rows, rank] and their singular values [rank], falling; both are 0 beyond the matrix's rank.

    ``product`` maps Q to A A^T Q and is called ``power_iterations`` + 1 times; ``start`` is random and is used up.
    """
    basis = start
    for _ in range(power_iterations):
        basis = product(basis)
        orthonormalise(basis)
    if not power_iterations:
        orthonormalise(basis)
    images = product(basis)
    inner = _cross(basis, images)
    basis.clear()
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    kept = values > _LEAST_EIGENVALUE * values[-1]
    root = vectors[:, kept] / np.sqrt(values[kept])
    squares, turns = np.linalg.eigh(root.T @ _cross(images, images) @ root)
    singular = np.sqrt(np.maximum(squares[::-1], 0.0))[:rank]
    maps = np.zeros((len(inner), rank))
    maps[:, : len(singular)] = root @ turns[:, ::-1][:, :rank] / np.maximum(singular, np.finfo(np.float32).tiny)
    result = np.empty((len(images[0]), rank), dtype=np.float32)
    for rows, part in _row_blocks(images):
        result[rows] = part @ maps
    # A vector's sign is free: its largest entry is made positive, so that rounding does not turn it round.
    result *= np.where(result.max(axis=0) < -result.min(axis=0), -1.0, 1.0).astype(np.float32)
    return result, np.pad(singular, (0, rank - len(singular)))


def orthonormalise(panels: Panels) -> None:
    """Turn columns into an orthonormal basis of their span, in place; what has no direction of its own becomes 0.

    By the eigenvectors of the Gram matrix, twice (SVQB, Stathopoulos & Wu 2002): unlike Householder's QR it needs no
    second matrix of this size, and it takes columns that depend on one another.
    """
    for _ in range(2):
        values, vectors = np.linalg.eigh(_cross(panels, panels))
        kept = values > _LEAST_SQUARED_LENGTH * values[-1]
        maps = vectors * np.where(kept, 1.0 / np.sqrt(np.where(kept, values, 1.0)), 0.0)
        bounds = np.cumsum([panel.shape[1] for panel in panels])[:-1]
        for rows, part in _row_blocks(panels):
            for panel, columns in zip(panels, np.split(part @ maps, bounds, axis=1), strict=True):
                panel[rows] = columns


def _cross(left: Sequence[Floats], right: Sequence[Floats]) -> Doubles:
    """Return left^T right, [k, k]."""
    total = np.zeros((sum(panel.shape[1] for panel in left), sum(panel.shape[1] for panel in right)))
    for (_, first), (_, second) in zip(_row_blocks(left), _row_blocks(right), strict=True):
        total += first.T @ second
    return total


def _row_blocks(panels: Sequence[Floats]) -> Iterator[tuple[slice, Doubles]]:
    """Yield some rows after the other, all panels side by side, in fp64."""
    for first in range(0, len(panels[0]), _ROWS):
        rows = slice(first, first + _ROWS)
        yield rows, np.concatenate([panel[rows] for panel in panels], axis=1, dtype=np.float64)
