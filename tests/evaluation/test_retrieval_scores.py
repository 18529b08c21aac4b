import numpy as np
import pytest

from xlm.evaluation.retrieval_scores import (
    PoolVectors,
    choose_layer,
    embed_pools,
    left_out,
    load_pools,
    make_pool,
    pool_scores,
    retrieval_means,
)
from xlm.tasks.evaluation_sets import RetrievalPair, save_retrieval


def pairs(count, language="de"):
    return [RetrievalPair(f"k{number:04d}", f"source {number}", f"{language} {number}") for number in range(count)]


def noisy(count, noise, state=0, width=16):
    """Vectors of translations: the same direction and some noise."""
    rng = np.random.default_rng(state)
    sources = rng.normal(size=(1, count, width)).astype(np.float32)
    return PoolVectors(sources, sources + noise * rng.normal(size=sources.shape).astype(np.float32))


def test_order_in_the_file_does_not_matter():
    forward, backward = make_pool("de", pairs(50)), make_pool("de", pairs(50)[::-1])
    assert forward == backward
    assert forward.sources != tuple(sorted(forward.sources))
    assert all(source.split()[1] == target.split()[1] for source, target in zip(forward.sources, forward.targets, strict=True))


def test_shared_english_is_embedded_once_and_put_where_it_belongs():
    calls = []

    def embed(texts, language):
        calls.append((language, list(texts)))
        return np.array([[[float(text.split()[1]), 1.0] for text in texts]], dtype=np.float32)

    pools = {"de": make_pool("de", pairs(30)), "fr": make_pool("fr", pairs(20, "fr"))}
    vectors = embed_pools(pools, embed)
    assert [language for language, _ in calls] == ["en", "de", "fr"]
    assert len(calls[0][1]) == 30
    for language, pool in pools.items():
        numbers = [float(text.split()[1]) for text in pool.sources]
        assert vectors[language].sources[0, :, 0].tolist() == numbers
        assert vectors[language].targets[0, :, 0].tolist() == numbers
    assert embed_pools({}, embed) == {}


def test_a_score_is_the_mean_over_full_blocks():
    vectors = noisy(450, 1.0)
    scores = pool_scores(vectors)

    def top1(queries, candidates):
        queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
        candidates = candidates / np.linalg.norm(candidates, axis=1, keepdims=True)
        return 100 * np.mean((queries @ candidates.T).argmax(axis=1) == np.arange(len(queries)))

    blocks = [(vectors.sources[0, start : start + 200], vectors.targets[0, start : start + 200]) for start in (0, 200)]
    assert scores["top1_200"]["en_to_xx"] == pytest.approx(np.mean([top1(a, b) for a, b in blocks]))
    assert scores["top1_200"]["xx_to_en"] == pytest.approx(np.mean([top1(b, a) for a, b in blocks]))
    assert scores["top1_200"]["blocks"] == 2
    assert 0 < scores["top1_200"]["mean"] < 100
    assert scores["margin_200"]["blocks"] == 2
    assert scores["top1_2000"] is None


def test_perfect_and_random_vectors():
    assert pool_scores(noisy(200, 0.0))["top1_200"]["mean"] == 100.0
    rng = np.random.default_rng(1)
    unrelated = PoolVectors(*(rng.normal(size=(1, 200, 16)).astype(np.float32) for _ in range(2)))
    assert pool_scores(unrelated)["top1_200"]["mean"] < 5


def test_small_pools_have_no_score_and_are_named():
    pools = {"de": make_pool("de", pairs(2000)), "hi": make_pool("hi", pairs(199))}
    assert pool_scores(noisy(199, 0.1)) == {"top1_200": None, "top1_2000": None, "margin_200": None}
    assert left_out(pools, ("en", "de", "hi", "ja")) == {
        "top1_200": {"hi": "pool of 199", "ja": "no pool"},
        "top1_2000": {"hi": "pool of 199", "ja": "no pool"},
    }


def test_means_leave_out_small_pools():
    by_language = {
        "de": {"systems": {"encoder": {"top1_200": {"mean": 90.0}, "top1_2000": {"mean": 60.0}}}},
        "hi": {"systems": {"encoder": {"top1_200": {"mean": 80.0}, "top1_2000": None}}},
    }
    assert retrieval_means(by_language, "encoder") == {"top1_200": 85.0, "top1_2000": 60.0}


def test_dev_pools_choose_the_layer():
    good, bad = noisy(60, 0.1), noisy(60, 5.0)
    vectors = {
        "de": PoolVectors(
            np.concatenate([bad.sources, good.sources, bad.sources]), np.concatenate([bad.targets, good.targets, bad.targets])
        )
    }
    assert choose_layer(vectors, (0, 1, -1)) == 1
    assert choose_layer({}, (0, 1, -1)) == 2
    assert choose_layer(vectors, (-1,)) == 0


def test_pools_are_read_for_the_languages_that_have_one(tmp_path):
    save_retrieval(tmp_path, "de", pairs(10))
    save_retrieval(tmp_path, "de", pairs(4), dev=True)
    assert list(load_pools(tmp_path, ("en", "de", "ja"))) == ["de"]
    assert len(load_pools(tmp_path, ("de",), dev=True)["de"]) == 4
