import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import IOB2, Entities
from sklearn.metrics import accuracy_score, f1_score
from sklearn.neighbors import NearestNeighbors

from xlm.tasks.metrics import accuracy, entities, macro_f1, margin_retrieval, top1_retrieval

LABELS = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcde")), min_size=1, max_size=40)


@given(LABELS)
def test_classification_scores_equal_those_of_scikit_learn(pairs):
    references, predictions = zip(*pairs, strict=True)
    assert accuracy(references, predictions) == pytest.approx(accuracy_score(references, predictions))
    assert macro_f1(references, predictions) == pytest.approx(f1_score(references, predictions, average="macro", zero_division=0))
    labels = ["a", "b", "z"]
    expected = f1_score(references, predictions, average="macro", labels=labels, zero_division=0)
    assert macro_f1(references, predictions, labels) == pytest.approx(expected)


def test_scores_of_nothing_or_of_unequal_lists_are_refused():
    with pytest.raises(ValueError, match="non-empty"):
        accuracy([], [])
    with pytest.raises(ValueError, match="one length"):
        macro_f1(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="one shape"):
        top1_retrieval(np.ones((3, 2)), np.ones((2, 2)))
    with pytest.raises(ValueError, match="not finite"):
        top1_retrieval(np.full((2, 2), np.nan), np.ones((2, 2)))


def _noisy_pair(size=150, width=16, noise=1.2, seed=0):
    random = np.random.default_rng(seed)
    source = random.standard_normal((size, width)) + 0.5
    return source, source + noise * random.standard_normal((size, width)) + 0.3


@pytest.mark.parametrize("chunk_rows", [1, 7, 1024])
def test_retrieval_finds_the_neighbours_that_scikit_learn_finds(chunk_rows):
    source, target = _noisy_pair()
    score = top1_retrieval(source, target, chunk_rows)
    for queries, candidates, hits in ((source, target, score.forward_hits), (target, source, score.backward_hits)):
        nearest = NearestNeighbors(n_neighbors=1, metric="cosine").fit(candidates).kneighbors(queries, return_distance=False)[:, 0]
        np.testing.assert_array_equal(hits, nearest == np.arange(len(queries)))
    assert 0.2 < score.forward < 0.9
    assert score.mean == pytest.approx((score.forward + score.backward) / 2)


@pytest.mark.parametrize("chunk_rows", [5, 1024])
def test_margin_is_the_published_ratio(chunk_rows):
    source, target = _noisy_pair(size=60)
    unit_source = source / np.linalg.norm(source, axis=1, keepdims=True)
    unit_target = target / np.linalg.norm(target, axis=1, keepdims=True)
    cosine = unit_source @ unit_target.T
    margin = np.zeros_like(cosine)
    for i in range(60):
        for j in range(60):
            around = np.sort(cosine[i])[-4:].mean() + np.sort(cosine[:, j])[-4:].mean()
            margin[i, j] = cosine[i, j] / (around / 2)
    score = margin_retrieval(source, target, chunk_rows=chunk_rows)
    np.testing.assert_array_equal(score.forward_hits, margin.argmax(axis=1) == np.arange(60))
    np.testing.assert_array_equal(score.backward_hits, margin.argmax(axis=0) == np.arange(60))


def test_an_encoder_that_maps_everything_to_one_point_scores_nothing():
    same = np.ones((5, 3))
    assert top1_retrieval(same, same).mean == 0.0
    assert margin_retrieval(same, same).mean == 0.0
    assert top1_retrieval(np.zeros((5, 3)), np.zeros((5, 3))).mean == 0.0


def test_both_directions_are_told_apart():
    # Target 1 is the nearest to both sources; every source is the nearest to its own target.
    source = np.array([[1.0, 0.0], [0.8, 0.6]])
    target = np.array([[0.6, -0.8], [0.8, 0.6]])
    score = top1_retrieval(source, target)
    assert (score.forward, score.backward) == (0.5, 1.0)
    swapped = top1_retrieval(target, source)
    assert (swapped.forward, swapped.backward) == (1.0, 0.5)


TAGS = st.sampled_from(["O", "B-a", "I-a", "B-b", "I-b"])


@given(st.lists(TAGS, max_size=12))
def test_entities_are_those_of_seqeval(tags):
    assert entities(tags) == {(name, start, end + 1) for name, start, end in get_entities(tags)}
    strict = Entities([tags], scheme=IOB2).entities[0] if tags else []
    assert entities(tags, strict=True) == {(one.tag, one.start, one.end) for one in strict}


def test_where_entities_begin():
    assert entities(["B-a", "I-a", "I-b", "O", "I-b", "B-b"]) == {("a", 0, 2), ("b", 2, 3), ("b", 4, 5), ("b", 5, 6)}
    assert entities(["B-a", "I-a", "I-b", "O", "I-b", "B-b"], strict=True) == {("a", 0, 2), ("b", 5, 6)}
    assert entities([]) == set()
