"""The whole room on a small corpus: coverage of every plan, counts, cuts at sentences, the same twice."""

from collections import Counter

import numpy as np
import pytest

from xlm.corpora.store import count_documents, count_pairs
from xlm.runs.fingerprint import file_sha256
from xlm.shards.build import EMPTY, TOO_LONG, ShardBuilder
from xlm.shards.plan_requests import PlanRequest
from xlm.shards.reader import ShardSet

SPECIAL = {"mlm": 2, "tlm": 3, "contrastive": 4}


def rows_of(shards, plan):
    return [shards.row(plan.corpus, plan.objective, plan.length, plan.variant, row) for row in range(plan.rows)]


def lengths_of(shards, corpus):
    return np.concatenate([sum(offsets[1:] - offsets[:-1] for offsets in shard.offsets) for shard in shards.shards(corpus)])


def test_every_item_is_stored_or_counted(shards, corpus_folder):
    for name, entry in shards.index.corpora.items():
        found = count_pairs(corpus_folder, name) if entry.kind == "pair" else count_documents(corpus_folder, name)
        assert entry.items + sum(entry.dropped.values()) == found
        assert entry.dropped == {EMPTY: 1}
        assert entry.tokens == lengths_of(shards, name).sum()


def test_every_plan_holds_every_token_once(shards):
    assert len(shards.index.plans) == 7 * 2 * 2
    for plan in shards.index.plans.values():
        lengths = lengths_of(shards, plan.corpus)
        rows = rows_of(shards, plan)
        special = SPECIAL[plan.objective]
        covered = Counter()
        for row in rows:
            assert row
            assert sum(end - start + special for _, start, end in row) <= plan.length
            for item, start, end in row:
                covered.update((item, token) for token in range(start, end))
        if plan.objective == "mlm":
            kept = range(len(lengths))
            assert plan.dropped == {}
        else:
            kept = np.flatnonzero(lengths + special <= plan.length).tolist()
            assert plan.dropped[TOO_LONG] == len(lengths) - len(kept) > 0
        assert covered == Counter((item, token) for item in kept for token in range(lengths[item]))
        assert plan.segments == sum(map(len, rows))
        used = sum(end - start + special for row in rows for _, start, end in row)
        assert plan.fill == pytest.approx(used / (plan.length * plan.rows), abs=1e-6)


def test_rows_stay_within_a_shard(shards):
    for plan in shards.index.plans.values():
        for row in rows_of(shards, plan):
            assert len({item // 130 for item, _, _ in row}) == 1


def test_long_documents_are_cut_at_sentences_or_words(shards, vocabulary, texts):
    for language in ("en", "de"):
        ids = [document.id for document in texts[language]]
        known, unknown = ids.index(f"{language}:long"), ids.index(f"{language}:longer")
        pieces = sorted(
            segment
            for row in rows_of(shards, shards.index.plan(language, "mlm", 64, 0))
            for segment in row
            if segment.item in (known, unknown)
        )
        for item, start, end in pieces:
            assert vocabulary.is_word_start[shards.document_tokens(language, item)[start]]
            if item == known and end < len(shards.document_tokens(language, item)):
                # Each sentence of the corpus ends with its number and a full stop.
                assert vocabulary.decode(shards.document_tokens(language, item)[start:end]).endswith(".")
        assert {segment.item for segment in pieces} == {known, unknown}


def test_the_same_corpus_gives_the_same_bytes(shards_folder, corpus_folder, vocabulary, tmp_path):
    ShardBuilder(corpus_folder, tmp_path, vocabulary, items_per_shard=130, variants=2, seed=7).build([])
    assert len(list((tmp_path / "tokens").iterdir())) == 15
    for path in sorted((tmp_path / "tokens").iterdir()):
        assert file_sha256(path) == file_sha256(shards_folder / "tokens" / path.name)


def test_plans_depend_on_seed_and_variant(shards, corpus_folder, vocabulary, tmp_path):
    request = [PlanRequest("en_de", "contrastive", 64)]
    rows = {}
    for seed in (7, 8):
        folder = tmp_path / str(seed)
        folder.mkdir()
        ShardBuilder(corpus_folder, folder, vocabulary, items_per_shard=130, variants=1, seed=seed).build(request)
        other = ShardSet(folder, vocabulary.fingerprint)
        rows[seed] = rows_of(other, other.index.plan("en_de", "contrastive", 64, 0))
    first, second = (rows_of(shards, shards.index.plan("en_de", "contrastive", 64, variant)) for variant in (0, 1))
    assert rows[7] == first
    assert rows[8] != first
    assert second != first
