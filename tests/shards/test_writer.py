"""The writer: what is counted, and what other programs read in the files."""

import numpy as np
import pyarrow as pa
import pytest

from xlm.runs.fingerprint import file_sha256
from xlm.shards.writer import ShardWriter, corpus_entry, offsets_of

ITEMS = [[5, 6, 7], [8, 65_535], [9]] * 5


def write(folder, items, number=0):
    writer = ShardWriter("en", "monolingual", ("en",), vocabulary_fingerprint="0123456789abcdef", token_dtype=np.dtype(np.uint16))
    for place, ids in enumerate(items):
        writer.add(f"doc {place}", np.array(ids, dtype=np.int32), sentence_starts=[0, 1] if place == 1 else None)
    return writer.write(folder, number)


def test_a_shard_holds_its_items_and_is_described(tmp_path):
    file = write(tmp_path, ITEMS, number=3)
    assert (file.path, file.items, file.tokens, file.sentences) == ("tokens/en-00003.arrow", 15, 30, 16)
    path = tmp_path / file.path
    assert (file.size_bytes, file.sha256) == (path.stat().st_size, file_sha256(path))
    with pa.OSFile(str(path), "rb") as source:
        stored = pa.ipc.open_file(source).read_all().to_pylist()
    assert [row["tokens"] for row in stored] == ITEMS
    assert [row["id"] for row in stored] == [f"doc {number}" for number in range(15)]
    assert [row["sentence_starts"] for row in stored] == [[0, 1] if number == 1 else None for number in range(15)]


def test_a_shard_may_be_empty(tmp_path):
    file = write(tmp_path, [])
    assert (file.items, file.tokens, file.sentences) == (0, 0, 0)


@pytest.mark.parametrize("numbers", [(), (0, 1)])
def test_a_corpus_is_the_sum_of_its_shards(tmp_path, numbers):
    files = [write(tmp_path, ITEMS, number) for number in numbers]
    entry = corpus_entry("en", "monolingual", ("en",), files, {"empty": 2})
    assert (entry.items, entry.tokens, entry.sentences) == (15 * len(numbers), 30 * len(numbers), 16 * len(numbers))
    assert (entry.files, entry.dropped) == (tuple(files), {"empty": 2})


def test_datasets_reads_shards_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    files = [str(tmp_path / write(tmp_path, part, number).path) for number, part in enumerate((ITEMS[:4], ITEMS[4:]))]
    loaded = datasets.load_dataset("arrow", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded["tokens"][:] == ITEMS
    assert loaded.features["tokens"] == datasets.LargeList(datasets.Value("uint16"))


def test_polars_reads_shards_as_they_are(tmp_path):
    polars = pytest.importorskip("polars")
    assert polars.scan_ipc(tmp_path / write(tmp_path, ITEMS).path).collect()["tokens"].to_list() == ITEMS


def test_offsets_are_sums_of_lengths():
    assert offsets_of(np.array([2, 0, 3])).tolist() == [0, 2, 2, 5]
    assert offsets_of(np.array([], dtype=np.int64)).tolist() == [0]
