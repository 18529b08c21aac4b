"""Rows read from a URL are those of the folder, and a machine fetches what its ranks read and nothing else."""

from __future__ import annotations

import multiprocessing
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.shards.stored import item_of, row_of
from tests.storage.http_folder import HttpFolder, served
from xlm.runs.stage import Stage
from xlm.shards.reader import ShardSet
from xlm.storage.publish import publish
from xlm.storage.store import RemoteStore
from xlm.vocab.vocabulary import Vocabulary

SPAWN = multiprocessing.get_context("spawn")
CORPORA = {"en": "documents", "en_de": "pairs"}


@pytest.fixture
def remote(shards_folder: Path, tmp_path: Path) -> Iterator[HttpFolder]:
    shutil.copytree(shards_folder, tmp_path / "built")
    Stage(tmp_path / "built", "shards", {"corpus": "1"}).finish_in_place({}, 1.0, 1)
    publish(tmp_path / "built", f"file://{tmp_path}/there", {})
    with served(tmp_path / "there") as http:
        yield http


def texts_of(shards: ShardSet, corpus: str, rows: range) -> list[list[int]]:
    """Return the tokens of the segments of some rows at length 64."""
    layout = CORPORA[corpus]
    found = []
    for row in rows:
        for item, start, end in row_of(shards, corpus, layout, 64, 0, row):
            _, sides = item_of(shards, corpus, item)
            found.append(np.concatenate(sides)[start:end].tolist())
    return found


def test_rows_are_the_same_and_only_their_files_are_fetched(
    remote: HttpFolder, shards: ShardSet, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    there = ShardSet(RemoteStore(remote.url, tmp_path / "cache", 10_000_000), vocabulary.fingerprint)
    assert texts_of(there, "en", range(2)) == texts_of(shards, "en", range(2))
    assert set(remote.requests) == {"index.json", "plans/en-documents-64-v0-00000.arrow", "tokens/en-00000.arrow"}
    # Another rank of the machine, by pickling as loader processes get it, fetches nothing.
    before = remote.requests.total()
    assert texts_of(pickle.loads(pickle.dumps(there)), "en", range(2)) == texts_of(shards, "en", range(2))
    assert remote.requests.total() == before
    # Another machine reads other rows, and never the first block.
    last = shards.index.plan("en_de", "pairs", 64, 0).rows
    other = ShardSet(RemoteStore(remote.url, tmp_path / "other", 10_000_000), vocabulary.fingerprint)
    assert texts_of(other, "en_de", range(last - 1, last)) == texts_of(shards, "en_de", range(last - 1, last))
    fetched = {path for path in remote.requests if "en_de" in path}
    assert fetched == {"plans/en_de-pairs-64-v0-00002.arrow", "tokens/en_de-00002.arrow"}


def mapped_bytes(folder: Path) -> int:
    """Return how much of the files that are, or were, in a folder this process has mapped."""
    total = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        if f"{folder}/" in line:
            start, end = line.split()[0].split("-")
            total += int(end, 16) - int(start, 16)
    return total


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not say what is mapped")
def test_a_process_keeps_at_most_an_eighth_of_the_cache_mapped(remote: HttpFolder, vocabulary: Vocabulary, tmp_path: Path) -> None:
    page = 4096
    sizes = [path.stat().st_size for path in remote.folder.rglob("*.arrow")]
    bound = 2 * max(sizes)
    assert sum(sizes) > 2 * bound
    there = ShardSet(RemoteStore(remote.url, tmp_path / "cache", 8 * bound), vocabulary.fingerprint)
    for key, plan in there.index.plans.items():
        for number in range(len(plan.files)):
            there.block(*key, number)
            there.shard(plan.corpus, number)
            assert 0 < mapped_bytes(tmp_path / "cache") <= bound + page * len(sizes)


def _read_everything(store: RemoteStore, folder: Path, fingerprint: str) -> None:
    here, there = ShardSet(folder, fingerprint), ShardSet(store, fingerprint)
    for corpus, layout in CORPORA.items():
        for rows in (range(here.index.plan(corpus, layout, 64, 0).rows),) * 2:  # type: ignore[arg-type]
            assert texts_of(there, corpus, rows) == texts_of(here, corpus, rows)


def test_ranks_share_a_cache_that_is_too_small_for_all(
    remote: HttpFolder, shards_folder: Path, shards: ShardSet, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    largest = max(path.stat().st_size for path in remote.folder.rglob("*") if path.is_file())
    store = RemoteStore(remote.url, tmp_path / "cache", 3 * largest)
    ranks = [SPAWN.Process(target=_read_everything, args=(store, shards_folder, vocabulary.fingerprint)) for _ in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert [rank.exitcode for rank in ranks] == [0, 0]
    assert sum(path.stat().st_size for path in (tmp_path / "cache").iterdir()) <= 3 * largest
