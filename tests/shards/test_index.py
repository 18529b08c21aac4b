"""The index: saved and read back, and asked for what it does not hold."""

import json
from dataclasses import replace

import pytest

from xlm.errors import UserError
from xlm.shards.format import FORMAT_VERSION
from xlm.shards.index import CorpusEntry, PieceCountsFile, PlanEntry, PlanFile, ShardFile, ShardIndex


def plan(corpus, layout, variant, rows, dropped=None):
    files = tuple(PlanFile(f"plans/{corpus}-{layout}-128-v{variant}-{n:05d}.arrow", count, 900, "ab" * 32) for n, count in enumerate(rows))
    return PlanEntry(corpus, layout, 128, variant, sum(rows), 10, 300, 0.9, files, dropped or {})


@pytest.fixture
def index():
    files = (ShardFile("tokens/en-00000.arrow", 7, 60, 9, 700, "aa" * 32), ShardFile("tokens/en-00001.arrow", 3, 30, 3, 400, "bb" * 32))
    pairs = (ShardFile("tokens/en_de-00000.arrow", 4, 40, 4, 500, "cc" * 32),)
    corpora = {
        "en": CorpusEntry("en", "monolingual", ("en",), 10, 90, 12, files, {"empty: no tokens": 2}),
        "en_de": CorpusEntry("en_de", "pair", ("en", "de"), 4, 40, 4, pairs),
    }
    plans = [
        plan("en", "documents", 0, [2, 1]),
        plan("en", "documents", 1, [2, 2]),
        plan("en_de", "pairs", 0, [1], {"too long: does not fit a row": 1}),
    ]
    counts = PieceCountsFile("piece_counts.npy", 1000, "dd" * 32)
    return ShardIndex("0123456789abcdef", 2, corpora, {(p.corpus, p.layout, p.length, p.variant): p for p in plans}, counts)


def test_it_survives_the_file(tmp_path, index):
    index.save(tmp_path)
    assert ShardIndex.load(tmp_path) == index
    without = replace(index, piece_counts=None)
    without.save(tmp_path)
    assert ShardIndex.load(tmp_path) == without


def test_it_answers(index):
    assert index.plan("en", "documents", 128, 1).rows == 4
    assert index.plan("en", "documents", 128, 0).block_rows == (2, 1)
    assert index.tokens("en_de") == 40
    assert [file.path for file in index.files()] == [
        *("tokens/en-00000.arrow", "tokens/en-00001.arrow", "tokens/en_de-00000.arrow"),
        *(f"plans/en-documents-128-v{variant}-0000{block}.arrow" for variant in (0, 1) for block in (0, 1)),
        *("plans/en_de-pairs-128-v0-00000.arrow", "piece_counts.npy"),
    ]
    assert [entry.name for entry in index.of_kind("pair")] == ["en_de"]
    assert index.corpora["en_de"].languages == ("en", "de")


def test_what_is_missing_is_named(index):
    with pytest.raises(
        UserError,
        match=r"no rows of 'en' are planned as documents at length 256, variant 0 \(planned: documents 128 v0, documents 128 v1\)",
    ):
        index.plan("en", "documents", 256, 0)
    with pytest.raises(UserError, match=r"no corpus 'en_dee' \(did you mean 'en_de'\?\); there are: en, en_de"):
        index.tokens("en_dee")


def test_missing_damaged_and_future_indices_are_sentences(tmp_path, index):
    with pytest.raises(UserError, match="there are no shards here"):
        ShardIndex.load(tmp_path)
    index.save(tmp_path)
    path = tmp_path / "index.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**data, "format_version": FORMAT_VERSION + 1}), encoding="utf-8")
    with pytest.raises(UserError, match=f"format {FORMAT_VERSION + 1} found, this version reads {FORMAT_VERSION}"):
        ShardIndex.load(tmp_path)
    for damaged in ("{", "[]", json.dumps({"format_version": FORMAT_VERSION}), json.dumps({**data, "plans": [{"corpus": "en"}]})):
        path.write_text(damaged, encoding="utf-8")
        with pytest.raises(UserError, match="index is damaged"):
            ShardIndex.load(tmp_path)


def test_another_number_of_variants_is_said(shards):
    shards.index.check_variants(2)
    with pytest.raises(UserError, match=r"shards\.variants is 3, but these shards have row plans in 2; build them again"):
        shards.index.check_variants(3)
