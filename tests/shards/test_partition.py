"""Shards are cut by items and by bytes of text, from the parquet file alone."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xlm.errors import UserError
from xlm.shards.partition import Partition, shard_sizes
from xlm.shards.source import Source


def by_hand(lengths, max_items, max_bytes):
    sizes, used = [], 0
    for length in lengths:
        if not sizes or sizes[-1] >= max_items or used + length > max_bytes:
            sizes.append(0)
            used = 0
        sizes[-1] += 1
        used += length
    return sizes


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    batches=st.lists(st.lists(st.integers(0, 30), max_size=12), max_size=6),
    max_items=st.integers(1, 9),
    max_bytes=st.integers(1, 60),
)
def test_shards_are_as_large_as_both_limits_allow(batches, max_items, max_bytes):
    sizes = list(shard_sizes([np.array(batch, dtype=np.int64) for batch in batches], max_items, max_bytes))
    lengths = [length for batch in batches for length in batch]
    assert sizes == by_hand(lengths, max_items, max_bytes)


def write(path, texts, group):
    table = pa.table(
        {"id": [str(n) for n in range(len(texts))], "text": texts, "sentence_starts": pa.nulls(len(texts), pa.list_(pa.int32()))}
    )
    pq.write_table(table, path, row_group_size=group)
    return Source("en", "monolingual", ("en",), path)


@pytest.mark.parametrize("group", [1, 7, 1000])
def test_any_stretch_is_read_whatever_the_row_groups(tmp_path, group):
    texts = [f"text {n}" for n in range(40)]
    source = write(tmp_path / "en.parquet", texts, group)
    assert source.items() == 40
    for first, items in [(0, 40), (0, 1), (39, 1), (6, 9), (7, 7), (20, 0)]:
        read = [row for batch in source.read(first, items, source.columns) for row in batch.to_pylist()]
        assert [row["text"] for row in read] == texts[first : first + items]
        assert [row["id"] for row in read] == [str(n) for n in range(first, first + items)]


def test_long_documents_make_shards_of_few(tmp_path):
    # Bytes, not characters: ж takes two.
    texts = ["ж" * 10] * 5 + ["a" * 500] + ["b"] * 70
    tasks = Partition(items_per_shard=50, max_text_bytes=40)(write(tmp_path / "en.parquet", texts, 10))
    assert [task.items for task in tasks] == [2, 2, 1, 1, 40, 30]
    assert [task.number for task in tasks] == list(range(6))
    assert [task.first_item for task in tasks] == [0, 2, 4, 5, 6, 46]


def test_no_text_makes_no_shard(tmp_path):
    assert Partition(10)(write(tmp_path / "en.parquet", [], 10)) == []


def test_a_damaged_file_is_one_sentence(tmp_path):
    path = tmp_path / "en.parquet"
    path.write_bytes(b"PAR1 not parquet")
    with pytest.raises(UserError, match=r"en\.parquet: this parquet file cannot be read"):
        Partition(10)(Source("en", "monolingual", ("en",), path))
