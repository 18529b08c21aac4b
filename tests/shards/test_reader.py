"""Reading back what was built: views, not copies; the right text; damage and another vocabulary noticed."""

import json
import pickle
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests.shards.stored import document_tokens, item_of, row_of
from xlm.corpora.store import read_pairs
from xlm.errors import UserError
from xlm.shards.format import write_arrow
from xlm.shards.index import ShardIndex
from xlm.shards.reader import ShardSet, TokenShard
from xlm.shards.writer import ShardWriter
from xlm.storage.store import LocalStore


def test_documents_come_back_as_they_were(shards, vocabulary, texts):
    for language, documents in texts.items():
        assert shards.index.corpora[language].items == len(documents)
        assert len(shards.index.corpora[language].files) == 3
        for item, document in enumerate(documents):
            name, (tokens,) = item_of(shards, language, item)
            assert name == document.id
            assert tokens.tolist() == vocabulary.encode(document.text).tolist()


def test_pairs_come_back_as_they_were(shards, vocabulary, corpus_folder):
    kept = [pair for pair in read_pairs(corpus_folder, "en_zh-Hans") if pair.target.strip()]
    for item, pair in enumerate(kept):
        key, (source, target) = item_of(shards, "en_zh-Hans", item)
        assert source.tolist() == vocabulary.encode(pair.source).tolist()
        assert target.tolist() == vocabulary.encode(pair.target).tolist()
        assert key == pair.key


def test_tokens_are_views_of_the_file(shards):
    shard = next(shards.shards("en"))
    tokens = shard.side(0, 3)
    assert tokens.dtype == np.uint16
    assert np.shares_memory(tokens, shard.tokens[0])
    assert not tokens.flags.owndata
    assert not tokens.flags.writeable


def test_special_pieces_are_not_stored(shards, vocabulary):
    for corpus in shards.index.corpora:
        for shard in shards.shards(corpus):
            assert all(not np.isin(vocabulary.special_ids, side).any() for side in shard.tokens)


def test_pairs_are_whole(shards):
    row = row_of(shards, "en_de", "pairs", 64, 1, 0)
    assert all(segment.start == 0 and segment.end == sum(map(len, item_of(shards, "en_de", segment.item)[1])) for segment in row)
    with pytest.raises(UserError, match="no rows of 'en' are planned as pairs"):
        shards.block("en", "pairs", 64, 0, 0)


def test_rows_are_found_in_their_blocks(shards):
    for plan in shards.index.plans.values():
        key = (plan.corpus, plan.layout, plan.length, plan.variant)
        assert plan.rows == sum(plan.block_rows)
        blocks, local = shards.block_of(*key, np.arange(plan.rows))
        expected = [(block, row) for block, rows in enumerate(plan.block_rows) for row in range(rows)]
        assert list(zip(blocks.tolist(), local.tolist(), strict=True)) == expected
        for row, (block, inside) in enumerate(expected):
            found, first = shards.block(*key, block), shards.first_item(plan.corpus, block)
            segments = slice(found.offsets[inside], found.offsets[inside + 1])
            assert [segment.item for segment in row_of(shards, *key, row)] == (found.segments.item[segments] + first).tolist()
            assert found.segments.item.max() < shards.shard(plan.corpus, block).items


def test_blocks_without_rows_hold_none(shards_folder, vocabulary, tmp_path):
    index = ShardIndex.load(shards_folder)
    plan = index.plan("en", "documents", 64, 0)
    files = tuple(replace(plan.files[0], rows=rows) for rows in (0, 3, 0, 0, 2, 0))
    replace(index, plans={("en", "documents", 64, 0): replace(plan, rows=5, files=files)}).save(tmp_path)
    blocks, local = ShardSet(tmp_path, vocabulary.fingerprint).block_of("en", "documents", 64, 0, np.arange(5))
    assert (blocks.tolist(), local.tolist()) == ([1, 1, 1, 4, 4], [0, 1, 2, 0, 1])


def test_sentences_are_found_among_the_flat_tokens(shards, texts):
    items = 0
    for shard in shards.shards("en"):
        known, starts = shard.sentence_starts()
        documents = texts["en"][items : items + shard.items]
        assert known.tolist() == [document.sentence_starts is not None for document in documents]
        assert np.diff(starts).min(initial=1) > 0
        for item in np.flatnonzero(known).tolist():
            first, last = shard.offsets[0][item], shard.offsets[0][item + 1]
            assert ((starts >= first) & (starts < last)).sum() == len(documents[item].sentence_starts)
            assert first in starts
        items += shard.items


def test_pieces_are_counted(shards):
    counts = shards.piece_counts()
    assert counts.sum() == sum(entry.tokens for entry in shards.index.corpora.values())


def test_files_are_opened_when_they_are_needed_and_only_those(shards_folder, vocabulary, monkeypatch):
    shards = ShardSet(shards_folder, vocabulary.fingerprint)
    asked = []
    local = LocalStore.local
    monkeypatch.setattr(LocalStore, "local", lambda store, path, *facts: asked.append(path) or local(store, path, *facts))
    blocks, inside = shards.block_of("en", "documents", 64, 0, np.array([0, 1]))
    assert (asked, blocks.tolist(), inside.tolist()) == ([], [0, 0], [0, 1])
    for _ in range(2):
        shards.block("en", "documents", 64, 0, 1)
        shards.shard("en", 1)
    assert asked == ["plans/en-documents-64-v0-00001.arrow", "tokens/en-00001.arrow"]


def test_another_vocabulary_is_refused_with_both_names(shards_folder, vocabulary):
    with pytest.raises(UserError, match=f"built with vocabulary {vocabulary.fingerprint}, but the vocabulary in use is feedfeedfeedfeed"):
        ShardSet(shards_folder, "feedfeedfeedfeed")


def test_a_shard_of_another_vocabulary_among_them_is_refused(shards_folder, vocabulary, tmp_path):
    """The index may be right and a file wrong, after copying by hand."""
    folder = tmp_path / "shards"
    shutil.copytree(shards_folder, folder)
    path = folder / "tokens" / "en-00000.arrow"
    # The footer repeats the schema, and it is the footer's that a reader of the file format sees.
    path.write_bytes(path.read_bytes().replace(vocabulary.fingerprint.encode(), b"f" * 16))
    with pytest.raises(UserError, match=rf"en-00000\.arrow: .*vocabulary ffffffffffffffff.*{vocabulary.fingerprint}"):
        ShardSet(folder, vocabulary.fingerprint).shard("en", 0)


@pytest.mark.parametrize("noted", [True, False], ids=["noted by the writer", "found by reading"])
@pytest.mark.parametrize("kind", ["monolingual", "pair"])
def test_an_id_outside_the_vocabulary_is_found_when_a_shard_is_opened(tmp_path, kind, noted):
    languages = ("en", "de") if kind == "pair" else ("en",)
    writer = ShardWriter("en", kind, languages, vocabulary_fingerprint="made-up", token_dtype=np.dtype(np.uint16))
    writer.add("good", *[np.array([5, 99])] * len(languages))
    writer.add("bad", *[np.array([7, 8])] * (len(languages) - 1), np.array([6, 100]))
    path = tmp_path / writer.write(tmp_path, 0).path
    if not noted:
        with pa.memory_map(str(path)) as source:
            batch = pa.ipc.open_file(source).get_batch(0)
            kept = {key: value for key, value in batch.schema.metadata.items() if key != b"xlm.largest_id"}
            write_arrow(tmp_path / "plain.arrow", batch.replace_schema_metadata(kept))
        path = tmp_path / "plain.arrow"
    TokenShard.open(path, kind, "made-up", 101)
    with pytest.raises(UserError, match=rf"{path.name}: this shard holds piece id 100, but the vocabulary has 100 pieces, 0 to 99"):
        TokenShard.open(path, kind, "made-up", 100)


def test_a_set_of_shards_checks_the_ids_of_each(shards_folder, vocabulary, tmp_path):
    folder = tmp_path / "shards"
    shutil.copytree(shards_folder, folder)
    assert ShardSet(folder, vocabulary.fingerprint, vocabulary.size).shard("en", 0).items
    largest = max(int(side.max()) for side in ShardSet(folder, vocabulary.fingerprint).shard("en", 0).tokens)
    # Whatever the index claims: the size is that of the vocabulary at hand, also in a loader's process.
    path = folder / "index.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "vocabulary_size": largest + 1}), encoding="utf-8")
    shards = pickle.loads(pickle.dumps(ShardSet(folder, vocabulary.fingerprint, largest)))
    with pytest.raises(UserError, match=rf"en-00000\.arrow: this shard holds piece id {largest}, but the vocabulary has {largest} pieces"):
        shards.shard("en", 0)


def test_an_empty_shard_has_no_id_outside(tmp_path):
    writer = ShardWriter("en", "monolingual", ("en",), vocabulary_fingerprint="made-up", token_dtype=np.dtype(np.uint16))
    assert TokenShard.open(tmp_path / writer.write(tmp_path, 0).path, "monolingual", "made-up", 5).items == 0


def test_verify_finds_one_changed_token(shards_folder, vocabulary, tmp_path):
    folder = tmp_path / "shards"
    shutil.copytree(shards_folder, folder)
    shards = ShardSet(folder, vocabulary.fingerprint)
    shards.verify()
    tokens = document_tokens(shards, "de", 140).tobytes()
    path = folder / "tokens" / "de-00001.arrow"
    whole = path.read_bytes()
    assert whole.count(tokens) == 1
    path.write_bytes(whole.replace(tokens, tokens[:-1] + bytes([tokens[-1] ^ 1])))
    with pytest.raises(UserError, match=r"de-00001\.arrow: the checksum of this file is not the one"):
        ShardSet(folder, vocabulary.fingerprint).verify()


def test_verify_finds_a_changed_row_plan(shards_folder, vocabulary, tmp_path):
    folder = tmp_path / "shards"
    shutil.copytree(shards_folder, folder)
    path = folder / "plans" / "de-documents-64-v1-00001.arrow"
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(whole)
    with pytest.raises(UserError, match=r"de-documents-64-v1-00001\.arrow: the checksum of this file"):
        ShardSet(folder, vocabulary.fingerprint).verify()


def test_verify_finds_another_shard_in_the_place_of_one(shards_folder, vocabulary, tmp_path):
    """A file that is whole, and of the right kind, vocabulary and size, but not the one that the index names."""
    folder = tmp_path / "shards"
    shutil.copytree(shards_folder, folder)
    shutil.copy(folder / "tokens" / "en-00001.arrow", folder / "tokens" / "en-00000.arrow")
    shards = ShardSet(folder, vocabulary.fingerprint)
    shards.shard("en", 0)
    with pytest.raises(UserError, match=r"en-00000\.arrow: the checksum of this file is not the one"):
        shards.verify()


def test_verify_finds_what_is_missing(shards_folder, vocabulary, tmp_path):
    folder = tmp_path / "shards"
    shutil.copytree(shards_folder, folder)
    (folder / "piece_counts.npy").unlink()
    with pytest.raises(UserError, match=r"piece_counts\.npy: this file cannot be read \(No such file"):
        ShardSet(folder, vocabulary.fingerprint).verify()


def test_missing_swapped_and_truncated_files_are_sentences(shards_folder, vocabulary, tmp_path):
    folder = tmp_path / "shards"
    shutil.copytree(shards_folder, folder)
    first, third = folder / "tokens" / "en-00000.arrow", folder / "tokens" / "en-00002.arrow"
    shutil.copy(third, first)
    with pytest.raises(UserError, match=r"items found, the index says 130"):
        ShardSet(folder, vocabulary.fingerprint).shard("en", 0)
    shutil.copy(folder / "tokens" / "en_de-00000.arrow", first)
    with pytest.raises(UserError, match="a monolingual shard of format 2 is expected; this is 'pair'"):
        ShardSet(folder, vocabulary.fingerprint).shard("en", 0)
    first.unlink()
    with pytest.raises(UserError, match=r"en-00000\.arrow: this file is missing"):
        ShardSet(folder, vocabulary.fingerprint).shard("en", 0)


def test_a_pickled_set_opens_its_own_files(shards):
    shards.shard("en", 0)
    payload = pickle.dumps(shards)
    assert len(payload) < 1000
    assert document_tokens(pickle.loads(payload), "en", 200).tolist() == document_tokens(shards, "en", 200).tolist()
