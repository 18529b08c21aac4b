"""The whole room on a small corpus: what is stored and planned, counted in full, and the same whoever does it."""

import importlib.util
import os
import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.shards.stored import item_of, row_of
from xlm.corpora.documents import Document, SentencePair
from xlm.corpora.store import count_documents, count_pairs, read_pairs, write_documents, write_pairs
from xlm.runs.fingerprint import file_sha256
from xlm.shards.backends import LocalBackend, RayBackend
from xlm.shards.build import ShardBuilder
from xlm.shards.layouts import RULES
from xlm.shards.one_shard import EMPTY
from xlm.shards.plan_requests import PlanRequest
from xlm.shards.reader import ShardSet

ITEMS_PER_SHARD = 130
REQUESTS = [
    PlanRequest(corpus, layout, length)
    for layout, rule in RULES.items()
    for corpus in (("en", "de", "zh-Hans") if rule.kind == "monolingual" else ("en_de", "en_zh-Hans"))
    for length in (32, 64)
]


def build(corpus_folder, folder, vocabulary, requests=REQUESTS, **settings):
    settings = {"items_per_shard": ITEMS_PER_SHARD, "variants": 2, "seed": 7, **settings}
    folder.mkdir(exist_ok=True)
    return ShardBuilder(corpus_folder, folder, vocabulary, **settings).build(requests)


@pytest.fixture(scope="module")
def built(corpus_folder, vocabulary, tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    assert build(corpus_folder, folder, vocabulary).n_way is None
    return ShardSet(folder, vocabulary.fingerprint)


def files_of(folder):
    return {path.relative_to(folder).as_posix(): file_sha256(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def rows_of(shards, plan):
    return [row_of(shards, plan.corpus, plan.layout, plan.length, plan.variant, row) for row in range(plan.rows)]


def lengths_of(shards, corpus):
    parts = [sum(np.diff(offsets) for offsets in shard.offsets) for shard in shards.shards(corpus)]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def test_every_item_is_stored_or_counted(built, corpus_folder):
    for name, entry in built.index.corpora.items():
        found = count_pairs(corpus_folder, name) if entry.kind == "pair" else count_documents(corpus_folder, name)
        assert entry.items + sum(entry.dropped.values()) == found
        assert entry.dropped == {EMPTY: 1}
        assert entry.tokens == lengths_of(built, name).sum()
        assert len(entry.files) == -(-found // ITEMS_PER_SHARD)
        assert all(file.items == ITEMS_PER_SHARD for file in entry.files[:-1])
        for file in entry.files:
            path = built.store.local(file.path, file.sha256, file.size_bytes)
            assert (path.stat().st_size, file_sha256(path)) == (file.size_bytes, file.sha256)


@pytest.mark.parametrize("layout", ["documents", "full_sentences", "pairs", "separate_pairs"])
def test_every_plan_holds_every_token_once(built, layout):
    plans = [plan for plan in built.index.plans.values() if plan.layout == layout]
    assert len(plans) == (3 if RULES[layout].kind == "monolingual" else 2) * 2 * 2
    for plan in plans:
        lengths = lengths_of(built, plan.corpus)
        covered = Counter()
        rows = rows_of(built, plan)
        for row in rows:
            covered.update((item, token) for item, start, end in row for token in range(start, end))
        kept = range(len(lengths))
        if RULES[layout].kind == "pair":
            kept = np.flatnonzero(lengths + RULES[layout].per_unit <= plan.length).tolist()
        assert sum(plan.dropped.values()) == len(lengths) - len(kept)
        assert covered == Counter((item, token) for item in kept for token in range(lengths[item]))
        assert plan.segments == sum(map(len, rows))
        assert plan.text_tokens == covered.total()


def test_blocks_join_to_their_plan(built):
    for key, plan in built.index.plans.items():
        blocks = [built.block(*key, block) for block in range(len(plan.files))]
        assert len(blocks) == len(built.index.corpus(plan.corpus).files)
        assert plan.block_rows == tuple(block.rows for block in blocks)
        assert plan.rows == sum(plan.block_rows)
        used = sum(block.used(plan.layout) for block in blocks)
        assert plan.fill == pytest.approx(used / (plan.rows * plan.length), abs=1e-6)
        assert 0 < plan.fill <= 1.0


def test_pieces_are_counted(built, vocabulary):
    counts = np.zeros(vocabulary.size, dtype=np.uint64)
    for corpus in built.index.corpora:
        for shard in built.shards(corpus):
            for tokens in shard.tokens:
                np.add.at(counts, tokens, 1)
    assert (built.piece_counts() == counts).all()
    assert counts.sum() == sum(entry.tokens for entry in built.index.corpora.values())


def test_shards_are_the_same_whoever_makes_them(built, corpus_folder, vocabulary, tmp_path):
    build(corpus_folder, tmp_path, vocabulary, backend=LocalBackend(3))
    assert files_of(tmp_path) == files_of(built.store.folder)


def test_workers_are_given_whole_paths(corpus_folder, vocabulary, tmp_path, monkeypatch):
    given = []

    class Noted(LocalBackend):
        def map(self, maker, tasks):
            given.append(pickle.dumps((maker, tasks)))
            return super().map(maker, tasks)

    monkeypatch.chdir(corpus_folder)
    (tmp_path / "shards").mkdir()
    here = Path(os.path.relpath(tmp_path / "shards"))
    ShardBuilder(Path(), here, vocabulary, items_per_shard=1000, variants=1, seed=7, n_way=True, backend=Noted()).build([])
    assert len(given) == 2
    for what in given:
        maker, tasks = pickle.loads(what)
        paths = [part for part in maker.args if isinstance(part, Path)]
        for task in tasks:
            source = getattr(task, "source", task)
            paths += [path for path in (source.path, source.turns) if path is not None]
        assert len(paths) >= 6
        assert all(path.is_absolute() for path in paths)


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed: pip install 'xlm[ray]'")
def test_ray_makes_the_same_shards(built, corpus_folder, vocabulary, tmp_path):
    import ray

    try:
        build(corpus_folder, tmp_path, vocabulary, backend=RayBackend(2))
        assert files_of(tmp_path) == files_of(built.store.folder)
    finally:
        ray.shutdown()


def test_plans_depend_on_seed_and_variant(built, corpus_folder, vocabulary, tmp_path):
    request = [PlanRequest("en_de", "separate_pairs", 64)]
    rows = {}
    for seed in (7, 8):
        build(corpus_folder, tmp_path / str(seed), vocabulary, request, variants=1, seed=seed)
        other = ShardSet(tmp_path / str(seed), vocabulary.fingerprint)
        rows[seed] = rows_of(other, other.index.plan("en_de", "separate_pairs", 64, 0))
    first, second = (rows_of(built, built.index.plan("en_de", "separate_pairs", 64, variant)) for variant in (0, 1))
    assert rows[7] == first
    assert rows[8] != first
    assert second != first


def test_long_documents_are_few_to_a_shard(vocabulary, tmp_path):
    text = "etaoin shrdlu " * 100
    documents = [Document(str(n), text * (40 if n == 7 else 1), "en", "made", None) for n in range(20)]
    write_documents(tmp_path / "corpus", "en", documents)
    build(tmp_path / "corpus", tmp_path / "shards", vocabulary, [PlanRequest("en", "documents", 64)], text_bytes_per_shard=5 * len(text))
    shards = ShardSet(tmp_path / "shards", vocabulary.fingerprint)
    assert [file.items for file in shards.index.corpus("en").files] == [5, 2, 1, 5, 5, 2]
    assert [item_of(shards, "en", item)[0] for item in range(20)] == [str(n) for n in range(20)]


def test_a_shard_may_hold_no_tokens_at_all(vocabulary, tmp_path):
    write_documents(tmp_path / "corpus", "en", [Document(str(n), " " if n < 3 else "one two", "en", "made", None) for n in range(5)])
    build(tmp_path / "corpus", tmp_path / "shards", vocabulary, [PlanRequest("en", "documents", 32)], items_per_shard=3)
    shards = ShardSet(tmp_path / "shards", vocabulary.fingerprint)
    shards.verify()
    entry, plan = shards.index.corpus("en"), shards.index.plan("en", "documents", 32, 0)
    assert ([file.items for file in entry.files], entry.dropped) == ([0, 2], {EMPTY: 3})
    assert plan.block_rows == (0, 1)
    assert item_of(shards, "en", 0)[0] == "3"


def test_n_way_plans_take_a_matching_of_the_languages_of_each_text(corpus_folder, vocabulary, tmp_path):
    requests = [PlanRequest(name, "pairs", 64) for name in ("en_de", "en_zh-Hans", "de_zh-Hans")]
    built = build(corpus_folder, tmp_path, vocabulary, requests, n_way=True, variants=3)
    assert not (tmp_path / ".n_way").exists()
    shards = ShardSet(tmp_path, vocabulary.fingerprint)
    keys = {pair.key for pair in read_pairs(corpus_folder, "en_de")}
    assert built.n_way.keys == len(keys)
    assert built.n_way.derived_pairs == len(keys)  # the texts of both corpora have the same keys
    assert shards.index.corpus("de_zh-Hans").items == len(keys) - 1  # one German text is empty
    assert shards.index.corpus("de_zh-Hans").languages == ("de", "zh-Hans")

    german = {pair.key: pair.target for pair in read_pairs(corpus_folder, "en_de")}
    key, (source, _) = item_of(shards, "de_zh-Hans", 20)
    assert source.tolist() == vocabulary.encode(german[key]).tolist()

    seen = Counter()
    for variant in range(3):
        of_variant = Counter()
        for name in ("en_de", "en_zh-Hans", "de_zh-Hans"):
            plan = shards.index.plan(name, "pairs", 64, variant)
            taken = [item_of(shards, name, item)[0] for row in rows_of(shards, plan) for item, _, _ in row]
            assert len(taken) > 50
            of_variant.update(taken)
            seen.update((name, key) for key in taken)
        assert set(of_variant.values()) == {1}
    assert set(seen.values()) == {1}
    assert {key for name, key in seen if name == "de_zh-Hans"} == keys - {"empty"}


def test_n_way_shards_do_not_depend_on_workers(corpus_folder, vocabulary, tmp_path):
    requests = [PlanRequest("de_zh-Hans", "separate_pairs", 32)]
    for workers in (1, 2):
        build(corpus_folder, tmp_path / str(workers), vocabulary, requests, n_way=True, backend=LocalBackend(workers))
    assert files_of(tmp_path / "1") == files_of(tmp_path / "2")


def test_pairs_without_a_shared_text_have_no_derived_corpus(vocabulary, tmp_path):
    for language, key in (("de", "a"), ("fr", "b")):
        write_pairs(tmp_path / "corpus", f"en_{language}", [SentencePair(key, "one", "two", "en", language, "made")])
    requests = [PlanRequest(name, "pairs", 32) for name in ("en_de", "en_fr", "de_fr")]
    index = build(tmp_path / "corpus", tmp_path / "shards", vocabulary, requests, n_way=True, variants=1).index
    assert sorted(index.corpora) == ["en_de", "en_fr"]
    assert {plan.corpus for plan in index.plans.values()} == {"en_de", "en_fr"}


def test_nothing_is_left_beside_the_shards(built):
    assert sorted(path.name for path in built.store.folder.iterdir()) == ["index.json", "piece_counts.npy", "plans", "tokens"]
