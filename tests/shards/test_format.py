"""The file format: schema, checksum, and files that are not what they should be."""

import hashlib

import numpy as np
import pyarrow as pa
import pytest

from xlm.errors import UserError
from xlm.shards.format import FileFacts, content_checksum, map_arrow, shard_metadata, shard_schema, write_arrow


def batch(tokens, ids=("a", "b"), starts=(None, [0])):
    schema = shard_schema("monolingual", np.dtype(np.uint16))
    arrays = [pa.array(ids), pa.array(tokens, schema.field("tokens").type), pa.array(starts, schema.field("sentence_starts").type)]
    return pa.record_batch(arrays, schema=schema)


def test_the_schema_is_the_documented_one():
    tokens, starts = pa.large_list(pa.uint16()), pa.large_list(pa.uint32())
    assert shard_schema("monolingual", np.dtype(np.uint16)).types == [pa.string(), tokens, starts]
    assert shard_schema("monolingual", np.dtype(np.uint16)).names == ["id", "tokens", "sentence_starts"]
    wide = pa.large_list(pa.uint32())
    assert shard_schema("pair", np.dtype(np.uint32)).types == [pa.string(), wide, wide]
    assert shard_schema("pair", np.dtype(np.uint32)).names == ["key", "source", "target"]


def test_metadata_names_vocabulary_and_languages():
    metadata = shard_metadata("pair", ("en", "zh-Hans"), "0123", "feed", 41)
    assert metadata[b"xlm.language"] == b"en_zh-Hans"
    assert metadata[b"xlm.vocabulary"] == b"0123"
    assert metadata[b"xlm.largest_id"] == b"41"
    names = ("format_version", "kind", "language", "vocabulary", "checksum", "largest_id")
    assert set(metadata) == {f"xlm.{name}".encode() for name in names}


def test_the_checksum_sees_every_change_and_survives_the_file(tmp_path):
    first = batch([[1, 2], [3]])
    others = [
        batch([[1], [2, 3]]),
        batch([[1, 2], [4]]),
        batch([[1, 2], [3]], ids=("a", "c")),
        batch([[1, 2], [3]], ids=("ab", "")),
        batch([[1, 2], [3]], starts=([], [0])),
        batch([[1, 2], [3]], starts=(None, [1])),
    ]
    assert len({content_checksum(each) for each in [first, *others]}) == 1 + len(others)
    facts = write_arrow(tmp_path / "below" / "x.arrow", first)
    path = tmp_path / "below" / "x.arrow"
    assert facts == FileFacts(path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()) == FileFacts.of(path)
    assert content_checksum(map_arrow(path)) == content_checksum(first) == content_checksum(batch([[1, 2], [3]]))


def test_missing_truncated_and_foreign_files_are_sentences(tmp_path):
    path = tmp_path / "x.arrow"
    with pytest.raises(UserError, match=r"x\.arrow: this file is missing"):
        map_arrow(path)
    write_arrow(path, batch([[1, 2], [3]]))
    whole = path.read_bytes()
    for damaged in (b"", b"text", whole[: len(whole) // 2], whole[:-4]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="damaged or not an Arrow IPC file"):
            map_arrow(path)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch([[1], [2]]).schema) as writer:
        writer.write_batch(batch([[1], [2]]))
        writer.write_batch(batch([[1], [2]]))
    with pytest.raises(UserError, match="2 record batches found, 1 expected"):
        map_arrow(path)
