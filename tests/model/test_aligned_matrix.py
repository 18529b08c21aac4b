"""The weighted matrix and the counts of pieces, against the formulas written out."""

import numpy as np
import pytest
from scipy import sparse

from xlm.model.aligned_matrix import PieceStrings, WeightedMatrix, build
from xlm.model.aligned_strings import PairBlock, StringParts

PAIRS = {
    "en_de": [("a", np.array([0, 0, 1]), np.array([2])), ("b", np.array([1]), np.array([2, 3]))],
    "en_fr": [("b", np.array([1]), np.array([4, 4, 4])), ("c", np.array([5, 1]), np.array([4]))],
}
# By hand, texts a, b, c: each string spreads a mass of 1.
SPREAD = np.array([[2 / 3, 0, 0], [1 / 3, 1, 1 / 2], [1, 1 / 2, 0], [0, 1 / 2, 0], [0, 1, 1], [0, 0, 1 / 2], [0, 0, 0]])


def built(folder, parts):
    strings = StringParts(folder / "strings", parts)
    for name, pairs in PAIRS.items():
        strings.add(name, PairBlock.of(pairs))
    matrix, counts = WeightedMatrix(folder / "columns", len(SPREAD)), PieceStrings(len(SPREAD), 3)
    build(strings.read(), matrix, counts)
    return matrix, counts


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_weights_are_their_formula(tmp_path, parts):
    matrix, _ = built(tmp_path, parts)
    columns = SPREAD / np.sqrt((SPREAD**2).sum(0))
    expected = columns / np.maximum((columns**2).sum(1, keepdims=True), 1e-30) ** 0.25
    found = sparse.vstack(list(matrix.transposed_blocks())).toarray().T
    order = [int(np.argmin(np.abs(found - column[:, None]).sum(0))) for column in expected.T]
    assert sorted(order) == [0, 1, 2]
    np.testing.assert_allclose(found[:, order], expected, rtol=1e-5)
    assert (matrix.columns, matrix.row_scale[6]) == (3, 0.0)


@pytest.mark.parametrize("parts", [1, 3])
def test_the_product_is_that_of_the_whole_matrix(tmp_path, parts):
    matrix, _ = built(tmp_path, parts)
    whole = sparse.vstack(list(matrix.transposed_blocks())).toarray().T
    generator = np.random.default_rng(0)
    panels = [generator.normal(size=(len(SPREAD), width)).astype(np.float32) for width in (3, 2)]
    steps = []
    found = matrix.gram_product(panels, lambda: steps.append(1))
    np.testing.assert_allclose(np.concatenate(found, axis=1), whole @ whole.T @ np.concatenate(panels, axis=1), atol=1e-5)
    assert len(steps) == matrix.blocks


@pytest.mark.parametrize("parts", [1, 3])
def test_rarity_is_its_formula(tmp_path, parts):
    _, counts = built(tmp_path, parts)
    # Distinct strings: en 3 (b's once, although two corpora pair it), de 2, fr 2.
    assert counts.strings == 7
    largest = np.array([1 / 3, 3 / 3, 2 / 2, 1 / 2, 2 / 2, 1 / 3])
    np.testing.assert_allclose(counts.rarity()[:6], np.log1p(1 / largest), rtol=1e-6)
    assert counts.rarity()[6] == 0.0
    np.testing.assert_allclose(counts.rarity(0.03)[:6], 0.03 / (0.03 + largest), rtol=1e-6)
    assert counts.rarity(0.03)[6] == 0.0
