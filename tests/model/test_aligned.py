"""Aligned embeddings: translations meet, the weighting is its formula, the file carries its vocabulary."""

import numpy as np
import pytest
from scipy import sparse

from xlm.errors import UserError
from xlm.model import aligned
from xlm.model.aligned import aligned_embeddings, load_aligned, save_aligned

CONCEPTS = 60
LANGUAGES = ("de", "fr")


def invented_corpora(strings=1500, seed=0):
    """Strings of 2-6 concepts; each language has its own piece a concept, in its own order."""
    generator = np.random.default_rng(seed)
    frequency = 1.0 / np.arange(2, CONCEPTS + 2)
    corpora = {f"en_{language}": [] for language in LANGUAGES}
    for number in range(strings):
        concepts = generator.choice(CONCEPTS, size=generator.integers(2, 7), p=frequency / frequency.sum())
        for place, language in enumerate(LANGUAGES, start=1):
            translation = generator.permutation(concepts) + place * CONCEPTS
            corpora[f"en_{language}"].append((f"key{number}", concepts + 10, translation + 10))
    return corpora


VOCABULARY = 10 + 3 * CONCEPTS
SETTINGS = {"vocabulary_size": VOCABULARY, "width": 32, "rms": 0.05}


def nearest_is_the_translation(table, language):
    english = table[10 : 10 + CONCEPTS]
    place = 10 + (1 + LANGUAGES.index(language)) * CONCEPTS
    other = table[place : place + CONCEPTS]
    similarity = (english / np.linalg.norm(english, axis=1)[:, None]) @ (other / np.linalg.norm(other, axis=1)[:, None]).T
    return float((similarity.argmax(1) == np.arange(CONCEPTS)).mean())


def test_a_piece_lies_nearest_to_its_translation():
    table = aligned_embeddings(invented_corpora(), **SETTINGS).table
    assert nearest_is_the_translation(table, "de") > 0.9
    assert nearest_is_the_translation(table, "fr") > 0.9


def test_misaligned_corpora_do_not_align():
    corpora = invented_corpora()
    shuffled = {name: [(f"{name}{key}", *texts) for key, *texts in pairs] for name, pairs in corpora.items()}
    for pairs in shuffled.values():
        targets = np.random.default_rng(1).permutation(len(pairs))
        pairs[:] = [(key, source, pairs[other][2]) for (key, source, _), other in zip(pairs, targets, strict=True)]
    assert nearest_is_the_translation(aligned_embeddings(shuffled, **SETTINGS).table, "de") < 0.3


def test_size_of_rows_and_counts():
    corpora = invented_corpora()
    corpora["en_de"].append(("new", np.array([10, 11]), np.array([], dtype=np.uint16)))
    result = aligned_embeddings(corpora, **SETTINGS)
    assert result.table.shape == (VOCABULARY, 32)
    assert result.table.dtype == np.float32
    assert (result.aligned_strings, result.strings, result.empty_strings) == (1501, 3 * 1500 + 1, 1)
    assert result.unseen_pieces == 10
    assert np.sqrt(np.mean(result.table[10:] ** 2)) == pytest.approx(0.05, rel=1e-5)
    assert np.sqrt(np.mean(result.table[:10] ** 2)) == pytest.approx(0.05 * aligned.UNSEEN_SHARE, rel=0.2)


def test_rarity_is_its_formula():
    """The row lengths follow min over languages of log(1 + strings / strings with the piece)."""
    corpora = invented_corpora(strings=400)
    table = aligned_embeddings(corpora, **SETTINGS).table
    strings = {"en": [set(source.tolist()) for _, source, _ in corpora["en_de"]]}
    strings |= {name[3:]: [set(target.tolist()) for _, _, target in pairs] for name, pairs in corpora.items()}
    lengths = np.linalg.norm(table, axis=1)
    expected = np.zeros(VOCABULARY)
    for piece in range(10, VOCABULARY):
        counts = {language: sum(piece in string for string in texts) for language, texts in strings.items()}
        expected[piece] = min(np.log(1 + len(strings[language]) / count) for language, count in counts.items() if count)
    np.testing.assert_allclose(lengths[10:] / lengths[10:].mean(), expected[10:] / expected[10:].mean(), rtol=1e-4)


def test_weighting_is_its_formula():
    corpora = {"en_de": [("a", np.array([0, 0, 1]), np.array([2])), ("b", np.array([1]), np.array([2, 3]))]}
    strings = aligned._collect(corpora)
    matrix = aligned._weighted(aligned._occurrences(strings, 4), strings).toarray()
    spread = np.array([[2 / 3, 0], [1 / 3, 1], [1, 0.5], [0, 0.5]])
    columns = spread / np.sqrt((spread**2).sum(0))
    expected = columns / (columns**2).sum(1, keepdims=True) ** 0.25
    np.testing.assert_allclose(matrix, expected, rtol=1e-5)


def test_rows_point_where_the_exact_decomposition_points():
    """At a width that oversampling lifts to full rank the random projection is exact."""
    corpora = invented_corpora(strings=300)
    width = 3 * CONCEPTS - aligned.OVERSAMPLING
    table = aligned_embeddings(corpora, VOCABULARY, width, rms=1.0, power=0.5).table[10:].astype(np.float64)
    strings = aligned._collect(corpora)
    left, singular, _ = np.linalg.svd(aligned._weighted(aligned._occurrences(strings, VOCABULARY), strings).toarray()[10:])
    exact = left[:, :width] * singular[:width] ** 0.5
    cosines = [rows @ rows.T / np.outer(*2 * [np.linalg.norm(rows, axis=1)]) for rows in (table, exact)]
    np.testing.assert_allclose(*cosines, atol=2e-3)


def test_a_string_counts_once_however_many_corpora_pair_it():
    corpora = {
        "de_fr": [("a", np.array([1]), np.array([2])), ("own", np.array([7]), np.array([8]))],
        "en_de": [("a", np.array([0]), np.array([1])), ("a", np.array([0]), np.array([3]))],  # two translations
        "en_fr": [("a", np.array([0]), np.array([2])), ("b", np.array([0]), np.array([2]))],
    }
    strings = aligned._collect(corpora)
    assert strings.pieces.tolist() == [1, 2, 7, 8, 0, 3, 0, 2]
    assert strings.column.tolist() == [0, 0, 1, 1, 0, 0, 2, 2]
    assert (strings.columns, strings.languages) == (3, 3)


def test_same_seed_same_table():
    first = aligned_embeddings(invented_corpora(), **SETTINGS, seed=1).table
    assert np.array_equal(first, aligned_embeddings(invented_corpora(), **SETTINGS, seed=1).table)
    assert not np.array_equal(first, aligned_embeddings(invented_corpora(), **SETTINGS, seed=2).table)


def test_too_few_pairs_for_the_width():
    with pytest.raises(UserError, match=r"5 aligned strings .* cannot fill 32 dimensions"):
        aligned_embeddings(invented_corpora(strings=5), **SETTINGS)
    with pytest.raises(UserError, match="0 aligned strings"):
        aligned_embeddings({}, **SETTINGS)


def test_occurrences_are_counts():
    strings = aligned._collect({"en_de": [("a", np.array([3, 3, 1]), np.array([2]))]})
    expected = sparse.coo_array(([2, 1, 1], ([3, 1, 2], [0, 0, 1])), shape=(5, 2)).toarray()
    assert np.array_equal(aligned._occurrences(strings, 5).toarray(), expected)


def test_file_round_trip_and_its_errors(tmp_path):
    with pytest.raises(UserError, match=r"init_embeddings\.py first"):
        load_aligned(tmp_path, "aaaa")
    table = np.arange(6, dtype=np.float32).reshape(3, 2)
    save_aligned(tmp_path, table, "aaaa")
    assert np.array_equal(load_aligned(tmp_path, "aaaa"), table)
    with pytest.raises(UserError, match="vocabulary aaaa, but the vocabulary in use is bbbb"):
        load_aligned(tmp_path, "bbbb")
    (tmp_path / aligned.FILE).write_bytes(b"not a tensor")
    with pytest.raises(UserError, match="damaged"):
        load_aligned(tmp_path, "aaaa")
