import pyarrow.parquet as pq
import pytest

from xlm.corpora import store
from xlm.corpora.documents import Document, SentencePair
from xlm.errors import UserError

DOCUMENTS = [Document("a:1", "Eins. Zwei.", "de", "a", (0, 6)), Document("b:2", "Drei", "de", "b"), Document("b:3", "", "de", "b", ())]
PAIRS = [SentencePair("k1", "one", "一", "en", "zh-Hans", "a"), SentencePair("k1", "one", "壹", "en", "zh-Hans", "b")]


def test_documents_and_pairs_come_back_as_they_went(tmp_path):
    assert store.write_documents(tmp_path, "de", DOCUMENTS) == 3
    assert store.write_pairs(tmp_path, "en_zh-Hans", PAIRS) == 2
    assert list(store.read_documents(tmp_path, "de")) == DOCUMENTS
    assert list(store.read_pairs(tmp_path, "en_zh-Hans")) == PAIRS
    assert store.document_languages(tmp_path) == ["de"]
    assert store.pair_names(tmp_path) == ["en_zh-Hans"]
    assert store.count_documents(tmp_path, "de") == 3
    assert store.count_pairs(tmp_path, "en_zh-Hans") == 2


def test_files_have_the_documented_columns(tmp_path):
    store.write_documents(tmp_path, "de", DOCUMENTS)
    store.write_pairs(tmp_path, "en_zh-Hans", PAIRS)
    assert pq.read_schema(tmp_path / "documents/de.parquet").names == ["id", "text", "corpus", "sentence_starts"]
    assert pq.read_schema(tmp_path / "pairs/en_zh-Hans.parquet").names == ["key", "source", "target", "corpus"]


def test_the_corpus_writer_sorts_rows_into_files_over_several_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "ROWS_PER_GROUP", 4)
    documents = [Document(str(n), f"text {n}", "en" if n % 3 else "fr", "c") for n in range(25)]
    with store.CorpusWriter(tmp_path) as writer:
        for document in documents:
            writer.document(document)
        for pair in PAIRS:
            writer.pair(pair)
    assert pq.read_metadata(tmp_path / "documents/en.parquet").num_row_groups == 4
    for language in ("en", "fr"):
        assert list(store.read_documents(tmp_path, language)) == [one for one in documents if one.language == language]
    assert list(store.read_pairs(tmp_path, "en_zh-Hans")) == PAIRS


def test_an_empty_language_can_be_written_and_read(tmp_path):
    store.write_documents(tmp_path, "hi", [])
    assert list(store.read_documents(tmp_path, "hi")) == []


def test_what_is_missing_or_damaged_is_one_sentence(tmp_path):
    store.write_pairs(tmp_path, "en_de", [])
    with pytest.raises(UserError, match=r"no pair corpus 'en_dee' \(did you mean 'en_de'\?\); it has: en_de"):
        list(store.read_pairs(tmp_path, "en_dee"))
    with pytest.raises(UserError, match="no documents in 'de'; it has: none"):
        list(store.read_documents(tmp_path, "de"))
    (tmp_path / "pairs/en_fr.parquet").write_bytes(b"PAR1 not parquet")
    with pytest.raises(UserError, match=r"en_fr.parquet: this parquet file cannot be read"):
        list(store.read_pairs(tmp_path, "en_fr"))
