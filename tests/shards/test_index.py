"""The index: saved and read back, and asked for what it does not hold."""

import json

import pytest

from xlm.errors import UserError
from xlm.shards.index import CorpusEntry, PlanEntry, ShardFile, ShardIndex


@pytest.fixture
def index():
    corpora = {
        "en": CorpusEntry("en", "monolingual", ("en",), 10, 90, (ShardFile("tokens/en-00000.arrow", 10, 90),), {"empty: no tokens": 2}),
        "en_de": CorpusEntry("en_de", "pair", ("en", "de"), 4, 40, (ShardFile("tokens/en_de-00000.arrow", 4, 40),)),
    }
    plans = [
        PlanEntry("en", "mlm", 128, 0, 1, 10, 0.9, "plans/en-mlm-128-v0.arrow"),
        PlanEntry("en", "mlm", 128, 1, 2, 10, 0.45, "plans/en-mlm-128-v1.arrow"),
        PlanEntry("en_de", "tlm", 128, 0, 1, 3, 0.4, "plans/en_de-tlm-128-v0.arrow", {"too long: does not fit a row": 1}),
    ]
    return ShardIndex("0123456789abcdef", 2, corpora, {(p.corpus, p.objective, p.length, p.variant): p for p in plans})


def test_it_survives_the_file(tmp_path, index):
    index.save(tmp_path)
    assert ShardIndex.load(tmp_path) == index


def test_it_answers(index):
    assert index.rows("en", "mlm", 128, 1) == 2
    assert index.tokens("en_de") == 40
    assert index.has_plan("en", "mlm", 128)
    assert not index.has_plan("en", "mlm", 256)
    assert [entry.name for entry in index.of_kind("pair")] == ["en_de"]
    assert index.corpora["en_de"].languages == ("en", "de")


def test_what_is_missing_is_named(index):
    with pytest.raises(
        UserError, match=r"no rows of 'en' are planned for mlm at length 256, variant 0 \(planned: mlm 128 v0, mlm 128 v1\)"
    ):
        index.rows("en", "mlm", 256, 0)
    with pytest.raises(UserError, match=r"no corpus 'en_dee' \(did you mean 'en_de'\?\); there are: en, en_de"):
        index.tokens("en_dee")


def test_missing_damaged_and_future_indices_are_sentences(tmp_path, index):
    with pytest.raises(UserError, match="there are no shards here"):
        ShardIndex.load(tmp_path)
    index.save(tmp_path)
    path = tmp_path / "index.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**data, "format_version": 2}), encoding="utf-8")
    with pytest.raises(UserError, match="format 2 found, this version reads 1"):
        ShardIndex.load(tmp_path)
    for damaged in ("{", "[]", json.dumps({"format_version": 1}), json.dumps({**data, "plans": [{"corpus": "en"}]})):
        path.write_text(damaged, encoding="utf-8")
        with pytest.raises(UserError, match="index is damaged"):
            ShardIndex.load(tmp_path)
