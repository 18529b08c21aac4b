"""Aligned embeddings: translations meet, the weighting is its formula, the file carries its vocabulary."""

import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from sklearn.utils.extmath import randomized_svd

from xlm.errors import UserError
from xlm.model import aligned
from xlm.model.aligned import aligned_embeddings, load_aligned, save_aligned
from xlm.model.aligned_strings import PairBlock
from xlm.model.streamed_svd import random_panels
from xlm.seeding import keyed_generator

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


def embeddings(corpora, scratch=None, **settings):
    """Hand corpora over in blocks of at most 100 pairs."""
    blocks = {name: [PairBlock.of(pairs[first : first + 100]) for first in range(0, len(pairs), 100)] for name, pairs in corpora.items()}
    tokens = sum(len(source) + len(target) for pairs in corpora.values() for _, source, target in pairs)
    with tempfile.TemporaryDirectory() as folder:
        return aligned_embeddings(blocks, tokens=tokens, scratch=scratch or Path(folder), **SETTINGS | settings)


def weighted_by_hand(corpora):
    """Steps 1-3 of the weighting, string by string: [VOCABULARY, texts]."""
    texts = {}
    for name, pairs in corpora.items():
        for key, *sides in pairs:
            texts.setdefault(key, set()).update((tag, tuple(side)) for tag, side in zip(name.split("_"), sides, strict=True) if len(side))
    matrix = np.zeros((VOCABULARY, len(texts)))
    for column, strings in enumerate(texts.values()):
        for _, string in strings:
            for piece in string:
                matrix[piece, column] += 1 / len(string)
    matrix /= np.sqrt((matrix**2).sum(0))
    return matrix / np.maximum((matrix**2).sum(1, keepdims=True), 1e-30) ** 0.25


def nearest_is_the_translation(table, language):
    english = table[10 : 10 + CONCEPTS]
    place = 10 + (1 + LANGUAGES.index(language)) * CONCEPTS
    other = table[place : place + CONCEPTS]
    similarity = (english / np.linalg.norm(english, axis=1)[:, None]) @ (other / np.linalg.norm(other, axis=1)[:, None]).T
    return float((similarity.argmax(1) == np.arange(CONCEPTS)).mean())


def test_a_piece_lies_nearest_to_its_translation():
    table = embeddings(invented_corpora()).table
    assert nearest_is_the_translation(table, "de") > 0.9
    assert nearest_is_the_translation(table, "fr") > 0.9


def test_misaligned_corpora_do_not_align():
    corpora = invented_corpora()
    shuffled = {name: [(f"{name}{key}", *texts) for key, *texts in pairs] for name, pairs in corpora.items()}
    for pairs in shuffled.values():
        targets = np.random.default_rng(1).permutation(len(pairs))
        pairs[:] = [(key, source, pairs[other][2]) for (key, source, _), other in zip(pairs, targets, strict=True)]
    assert nearest_is_the_translation(embeddings(shuffled).table, "de") < 0.3


def test_size_of_rows_and_counts():
    corpora = invented_corpora()
    corpora["en_de"].append(("new", np.array([10, 11]), np.array([], dtype=np.uint16)))
    result = embeddings(corpora)
    assert result.table.shape == (VOCABULARY, 32)
    assert result.table.dtype == np.float32
    assert (result.aligned_strings, result.strings, result.empty_strings) == (1501, 3 * 1500 + 1, 1)
    assert result.unseen_pieces == 10
    assert np.sqrt(np.mean(result.table[10:] ** 2)) == pytest.approx(0.05, rel=1e-5)
    assert np.sqrt(np.mean(result.table[:10] ** 2)) == pytest.approx(0.05 * aligned.UNSEEN_SHARE, rel=0.2)


def test_rarity_is_its_formula():
    """The row lengths follow min over languages of log(1 + strings / strings with the piece)."""
    corpora = invented_corpora(strings=400)
    table = embeddings(corpora).table
    strings = {"en": [set(source.tolist()) for _, source, _ in corpora["en_de"]]}
    strings |= {name[3:]: [set(target.tolist()) for _, _, target in pairs] for name, pairs in corpora.items()}
    lengths = np.linalg.norm(table, axis=1)
    expected = np.zeros(VOCABULARY)
    for piece in range(10, VOCABULARY):
        counts = {language: sum(piece in string for string in texts) for language, texts in strings.items()}
        expected[piece] = min(np.log(1 + len(strings[language]) / count) for language, count in counts.items() if count)
    np.testing.assert_allclose(lengths[10:] / lengths[10:].mean(), expected[10:] / expected[10:].mean(), rtol=1e-4)
    # Of the same shares, smooth inverse frequencies.
    smooth = 0.03 / (0.03 + 1 / np.expm1(expected[10:]))
    lengths = np.linalg.norm(embeddings(corpora, sif=0.03).table, axis=1)[10:]
    np.testing.assert_allclose(lengths / lengths.mean(), smooth / smooth.mean(), rtol=1e-4)


def test_rows_point_where_the_exact_decomposition_points():
    """At a width that oversampling lifts to full rank the random projection is exact."""
    corpora = invented_corpora(strings=300)
    width = 3 * CONCEPTS - aligned.OVERSAMPLING
    table = embeddings(corpora, width=width, rms=1.0, power=0.5).table[10:].astype(np.float64)
    left, singular, _ = np.linalg.svd(weighted_by_hand(corpora)[10:])
    exact = left[:, :width] * singular[:width] ** 0.5
    cosines = [rows @ rows.T / np.outer(*2 * [np.linalg.norm(rows, axis=1)]) for rows in (table, exact)]
    np.testing.assert_allclose(*cosines, atol=2e-3)


def test_the_table_is_that_of_scikit_learn_but_for_signs():
    """On the whole matrix, with the same random start."""
    corpora = invented_corpora()
    table = embeddings(corpora, rms=1.0, power=0.25).table.astype(np.float64)
    start = np.concatenate(random_panels(keyed_generator("aligned", 0), VOCABULARY, 32 + aligned.OVERSAMPLING), axis=1)

    class SameStart(np.random.RandomState):
        def normal(self, size):
            assert size == start.shape
            return start

    left, singular, _ = randomized_svd(
        weighted_by_hand(corpora), 32, n_oversamples=aligned.OVERSAMPLING, n_iter=aligned.POWER_ITERATIONS, random_state=SameStart(0)
    )
    rows = left * singular**0.25
    rows = rows[10:] * (np.linalg.norm(table[10:], axis=1) / np.linalg.norm(rows[10:], axis=1))[:, None]
    signs = np.sign(np.sum(rows * table[10:], axis=0))
    np.testing.assert_allclose(rows * signs, table[10:], atol=2e-3 * np.abs(rows).max())


@pytest.mark.parametrize("part_tokens", [700, 5_000])
def test_how_many_parts_there_are_changes_only_the_rounding(part_tokens):
    whole, parted = (embeddings(invented_corpora(), part_tokens=size).table for size in (1 << 20, part_tokens))
    np.testing.assert_allclose(parted, whole, atol=1e-4 * np.abs(whole).max())


def test_a_string_counts_once_however_many_corpora_pair_it():
    corpora = {
        "de_fr": [("a", np.array([1]), np.array([2])), ("own", np.array([7]), np.array([8]))],
        "en_de": [("a", np.array([0]), np.array([1])), ("a", np.array([0]), np.array([3]))],  # two translations
        "en_fr": [("a", np.array([0]), np.array([2])), ("b", np.array([0]), np.array([2]))],
    }
    result = embeddings(corpora, vocabulary_size=9, width=2)
    assert (result.aligned_strings, result.strings, result.empty_strings) == (3, 8, 0)


def test_files_on_the_way_are_removed(tmp_path):
    embeddings(invented_corpora(strings=100), scratch=tmp_path)
    with pytest.raises(UserError):
        embeddings({}, scratch=tmp_path)
    assert not list(tmp_path.iterdir())


def test_memory_does_not_grow_with_the_number_of_strings(tmp_path):
    """Four times the strings, the same peak."""

    def blocks(name, count):
        generator = np.random.default_rng(count)
        for first in range(0, count, 500):
            ids = [generator.integers(0, 300, 500 * 12) for _ in range(2)]
            ends = np.arange(0, 501 * 12, 12)
            yield PairBlock([f"{name}{first + place}" for place in range(500)], (ids[0], ids[1]), (ends, ends))

    def peak(count, part_tokens=6_000):
        tracemalloc.start()
        corpora = {"en_de": blocks("a", count), "en_fr": blocks("b", count)}
        aligned_embeddings(corpora, 300, 8, tokens=4 * 12 * count, scratch=tmp_path, rms=1.0, part_tokens=part_tokens)
        return [tracemalloc.get_traced_memory()[1], tracemalloc.stop()][0]

    peak(500)  # imports
    few, many = peak(1_500), peak(6_000)
    assert many < 1.2 * few
    assert peak(6_000, part_tokens=1 << 30) > 2 * many  # so strings are what this measures


def test_same_seed_same_table():
    first = embeddings(invented_corpora(), seed=1).table
    assert np.array_equal(first, embeddings(invented_corpora(), seed=1).table)
    assert not np.array_equal(first, embeddings(invented_corpora(), seed=2).table)


def test_too_few_pairs_for_the_width():
    with pytest.raises(UserError, match=r"5 aligned strings .* cannot fill 32 dimensions"):
        embeddings(invented_corpora(strings=5))
    with pytest.raises(UserError, match="0 aligned strings"):
        embeddings({})


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
