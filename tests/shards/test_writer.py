"""The writer: when shards are closed, and what other programs read in them."""

import numpy as np
import pyarrow as pa
import pytest

from xlm.shards.writer import ShardWriter, offsets_of


def write(folder, items, **limits):
    limits = {"items_per_shard": 100, "tokens_per_shard": 10_000, **limits}
    writer = ShardWriter(
        folder, "en", "monolingual", ("en",), vocabulary_fingerprint="0123456789abcdef", token_dtype=np.dtype(np.uint16), **limits
    )
    for number, ids in enumerate(items):
        writer.add(f"doc {number}", np.array(ids, dtype=np.int32), sentence_starts=[0, 1] if number == 1 else None)
    return writer.close()


ITEMS = [[5, 6, 7], [8, 65_535], [9]] * 5


@pytest.mark.parametrize(
    ("limits", "items_per_file"),
    [({}, [15]), ({"items_per_shard": 4}, [4, 4, 4, 3]), ({"items_per_shard": 15}, [15]), ({"tokens_per_shard": 7}, [4, 4, 4, 3])],
)
def test_shards_close_at_either_limit(tmp_path, limits, items_per_file):
    entry = write(tmp_path, ITEMS, **limits)
    assert [file.items for file in entry.files] == items_per_file
    assert (entry.items, entry.tokens) == (15, 30)
    assert sum(file.tokens for file in entry.files) == 30
    stored = []
    for file in entry.files:
        with pa.OSFile(str(tmp_path / file.path), "rb") as source:
            stored += pa.ipc.open_file(source).read_all().to_pylist()
    assert [row["tokens"] for row in stored] == ITEMS
    assert [row["id"] for row in stored] == [f"doc {number}" for number in range(15)]
    assert [row["sentence_starts"] for row in stored] == [[0, 1] if number == 1 else None for number in range(15)]


def test_a_corpus_without_items_has_no_files(tmp_path):
    entry = write(tmp_path, [])
    assert (entry.items, entry.tokens, entry.files) == (0, 0, ())


def test_datasets_reads_shards_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    entry = write(tmp_path, ITEMS, items_per_shard=4)
    files = [str(tmp_path / file.path) for file in entry.files]
    loaded = datasets.load_dataset("arrow", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded["tokens"][:] == ITEMS
    assert loaded.features["tokens"] == datasets.LargeList(datasets.Value("uint16"))


def test_polars_reads_shards_as_they_are(tmp_path):
    polars = pytest.importorskip("polars")
    entry = write(tmp_path, ITEMS)
    assert polars.scan_ipc(tmp_path / entry.files[0].path).collect()["tokens"].to_list() == ITEMS


def test_offsets_are_sums_of_lengths():
    assert offsets_of(np.array([2, 0, 3])).tolist() == [0, 2, 2, 5]
    assert offsets_of(np.array([], dtype=np.int64)).tolist() == [0]
