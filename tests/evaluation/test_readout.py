import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from xlm.config.recipe import EvaluationSection, WhiteningSection
from xlm.corpora.documents import SentencePair
from xlm.corpora.store import write_pairs
from xlm.errors import UserError
from xlm.evaluation.readout import (
    FLOOR_SHARE,
    Readout,
    Translations,
    chosen_readout,
    inverse_root,
    load_translations,
    pairs_drawn,
    whitened,
)


def test_layers_are_checked_against_the_model():
    assert chosen_readout(EvaluationSection(), 4) == Readout((-1,))
    assert chosen_readout(EvaluationSection(layers=(0, 2, 4)), 4) == Readout((0, 2, -1))
    assert chosen_readout(EvaluationSection(layers="joined"), 2) == Readout((0, 1, -1), joined=True)
    with pytest.raises(UserError, match=r"evaluation\.layers is \[2, 7\]; this model has layers 0 \(embeddings\) to 4"):
        chosen_readout(EvaluationSection(layers=(2, 7)), 4)


def test_choices_are_named():
    assert Readout((0, 3, -1)).names == ("0", "3", "final")
    assert Readout((0, 3, -1), joined=True).names == ("joined",)


def test_words_and_retrieval_read_the_final_layer_of_those_joined():
    assert Readout((0, 1, -1), joined=True).unjoined == Readout((-1,))
    assert Readout((0, 1)).unjoined == Readout((0, 1))


def test_joined_layers_lie_side_by_side():
    states = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    assert Readout((0, -1)).arrange(states) is states
    np.testing.assert_array_equal(Readout((0, -1), joined=True).arrange(states), [[[0, 1, 2, 6, 7, 8], [3, 4, 5, 9, 10, 11]]])


@given(st.integers(1, 6), st.integers(0, 2**16))
@settings(max_examples=25, deadline=None)
def test_inverse_root_is_scipys(features, seed):
    data = np.random.default_rng(seed).normal(size=(50, features)) * np.arange(1, features + 1)
    covariance = data.T @ data / 50
    raised = covariance + FLOOR_SHARE * np.trace(covariance) / features * np.eye(features)
    np.testing.assert_allclose(inverse_root(covariance), scipy.linalg.inv(scipy.linalg.sqrtm(raised)).real, atol=1e-8)


def test_differences_between_translations_become_alike_in_every_direction():
    rng = np.random.default_rng(1)
    meaning = {str(number): rng.normal(size=4) for number in range(2000)}
    # Languages differ by a constant and by noise along the first axis; meaning lies along all of them.
    noise = {text: rng.normal(size=4) * [5, 0.5, 0.5, 0.5] + [9, 0, 0, 0] for text in meaning}

    def read(texts, language):
        own = [meaning[text] + (noise[text] if language == "de" else 0.0) for text in texts]
        return np.array([own, own], dtype=np.float32)

    texts = tuple(meaning)
    mapped = whitened(read, [Translations("de", texts, texts)])
    for row in range(2):
        difference = (mapped(texts, "en") - mapped(texts, "de"))[row].astype(np.float64)
        moment = difference.T @ difference / (2 * len(texts))
        # What the constant and the noise take up is 1 in all directions, less where FLOOR_SHARE holds a small one down.
        assert moment[0, 0] == pytest.approx(1.0, abs=0.02)
        assert np.all(np.diag(moment)[1:] < 1.0)
    spread = mapped(texts, "en")[0].std(axis=0)
    assert spread[0] < 0.2 * spread[1:].min()


def test_languages_count_alike_however_many_pairs_they_have():
    def read(texts, language):
        shift = {"en": [0, 0], "de": [2, 0], "fr": [0, 2]}[language]
        return np.array([[shift] * len(texts)], dtype=np.float32)

    many, few = ("a",) * 1000, ("a",) * 10
    mapped = whitened(read, [Translations("de", many, many), Translations("fr", few, few)])
    assert mapped(("a",), "de")[0, 0, 0] == pytest.approx(mapped(("a",), "fr")[0, 0, 1])


def test_vectors_without_any_difference_stay_finite():
    mapped = whitened(lambda texts, _: np.ones((1, len(texts), 3), dtype=np.float32), [Translations("de", ("a", "b"), ("a", "b"))])
    assert np.isfinite(mapped(("a",), "en")).all()


@pytest.fixture
def corpus(tmp_path):
    def pairs(language, count):
        return [
            SentencePair(f"k{n}", f"word number {n}" if n % 2 else f"name{n}", f"{language} {n}", "en", language, "c") for n in range(count)
        ]

    write_pairs(tmp_path, "en_de", pairs("de", 100))
    write_pairs(tmp_path, "en_fr", pairs("fr", 6))
    return tmp_path


def test_pairs_are_drawn_from_those_long_enough(corpus):
    found = load_translations(corpus, ("en", "de", "fr", "sw"), WhiteningSection(pairs_per_language=20), seed=1)
    assert pairs_drawn(found) == {"de": 20, "fr": 3}
    assert len(set(found[0].sources)) == 20
    assert all(source.startswith("word number") for pairs in found for source in pairs.sources)
    assert all(
        source.split()[-1] == target.split()[-1] for pairs in found for source, target in zip(pairs.sources, pairs.targets, strict=True)
    )


def test_draws_are_keyed(corpus):
    section = WhiteningSection(pairs_per_language=20)
    assert load_translations(corpus, ("de",), section, seed=1) == load_translations(corpus, ("fr", "de"), section, seed=1)[1:]
    assert load_translations(corpus, ("de",), section, seed=1) != load_translations(corpus, ("de",), section, seed=2)


def test_corpus_without_pairs_is_told(corpus):
    assert load_translations(corpus, ("sw",), None, seed=1) == []
    with pytest.raises(UserError, match=r"evaluation\.whitening needs pairs of English and sw with at least 2 English words"):
        load_translations(corpus, ("sw",), WhiteningSection(), seed=1)
