"""The streamed decomposition against LAPACK's and scikit-learn's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.utils.extmath import randomized_svd

from xlm.model.streamed_svd import left_singular_vectors, orthonormalise, random_panels


def product_with(matrix):
    return lambda panels: [(matrix @ (matrix.T @ panel)).astype(np.float32) for panel in panels]


def falling(rows, columns, decay, seed=0):
    """A matrix with singular values 1, decay, decay^2, ..."""
    generator = np.random.default_rng(seed)
    left, _ = np.linalg.qr(generator.normal(size=(rows, min(rows, columns))))
    right, _ = np.linalg.qr(generator.normal(size=(columns, min(rows, columns))))
    return (left * decay ** np.arange(left.shape[1])) @ right.T


@given(
    rows=st.integers(20, 200), columns=st.integers(20, 200), decay=st.floats(0.8, 0.99), extra=st.integers(0, 100), seed=st.integers(0, 99)
)
@settings(max_examples=30, deadline=None)
def test_equals_scikit_learn_from_the_same_start(rows, columns, decay, extra, seed):
    """Singular values, and the subspaces of vectors whose values are apart from those that are cut off."""
    rank = 10
    wanted = min(rank + extra, rows)
    matrix = falling(rows, columns, decay, seed)
    start = np.random.RandomState(seed).normal(size=(rows, wanted)).astype(np.float32)
    panels = [start[:, first : first + 64].copy() for first in range(0, wanted, 64)]

    class SameStart(np.random.RandomState):
        def normal(self, size):
            return start

    # `transpose` makes it start from [rows, k], as the streamed form does.
    left, singular, _ = randomized_svd(matrix, rank, n_oversamples=wanted - rank, n_iter=1, transpose=True, random_state=SameStart())
    found, found_singular = left_singular_vectors(product_with(matrix), panels, rank, 1)
    np.testing.assert_allclose(found_singular, singular, rtol=2e-3)
    projections = [vectors * values @ vectors.T for vectors, values in ((found, found_singular), (left, singular))]
    np.testing.assert_allclose(*projections, atol=2e-3)


@pytest.mark.parametrize("rank", [5, 12])
def test_a_matrix_of_low_rank_is_exact_and_its_rest_is_zero(rank):
    matrix = falling(60, 8, 0.7)  # of rank 8
    vectors, singular = left_singular_vectors(product_with(matrix), random_panels(np.random.default_rng(1), 60, 20), rank, 1)
    exact, values, _ = np.linalg.svd(matrix)
    np.testing.assert_allclose(singular[: min(rank, 8)], values[: min(rank, 8)], rtol=1e-4)
    np.testing.assert_array_equal(singular[8:], 0.0)
    np.testing.assert_array_equal(vectors[:, 8:], 0.0)
    known = min(rank, 8)
    np.testing.assert_allclose(np.abs(np.sum(vectors[:, :known] * exact[:, :known], axis=0)), 1.0, atol=1e-4)


def test_each_power_iteration_comes_closer():
    matrix = falling(400, 400, 0.98)
    exact = np.linalg.svd(matrix, compute_uv=False)[:20]
    errors = []
    for iterations in (0, 1, 2):
        _, singular = left_singular_vectors(product_with(matrix), random_panels(np.random.default_rng(0), 400, 25), 20, iterations)
        errors.append(np.abs(singular - exact).max())
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


def test_a_basis_is_orthonormal_also_where_columns_hardly_differ():
    generator = np.random.default_rng(0)
    common = generator.normal(size=(9_000, 1))
    panels = [(common + 1e-2 * generator.normal(size=(9_000, width))).astype(np.float32) for width in (64, 7)]
    orthonormalise(panels)
    basis = np.concatenate(panels, axis=1).astype(np.float64)
    np.testing.assert_allclose(basis.T @ basis, np.eye(71), atol=1e-5)


def test_signs_do_not_depend_on_the_start():
    matrix = falling(80, 50, 0.7)
    first, second = (
        left_singular_vectors(product_with(matrix), random_panels(np.random.default_rng(seed), 80, 30), 6, 2)[0] for seed in (0, 1)
    )
    np.testing.assert_allclose(first, second, atol=1e-4)
