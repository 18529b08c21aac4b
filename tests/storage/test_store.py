"""Stores: a folder as it is, and a URL through the cache, whatever the network does."""

from __future__ import annotations

import hashlib
import importlib.util
import multiprocessing
import os
import pickle
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.http_folder import HttpFolder, served
from xlm.config.recipe import StorageSection
from xlm.errors import UserError
from xlm.runs.stage import Stage
from xlm.storage import store as store_module
from xlm.storage.store import LocalStore, RemoteStore, StoreStatistics, open_store, shard_cache_folder

SPAWN = multiprocessing.get_context("spawn")
FILES = {f"tokens/en-{number}.arrow": random.Random(number).randbytes(20_000) for number in range(6)}
CONTENTS = {path: (hashlib.sha256(content).hexdigest(), len(content)) for path, content in FILES.items()}
FIRST = "tokens/en-0.arrow"


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    with Stage(tmp_path / "shards", "shards", {"corpus": "1"}).write() as output:
        (output.folder / "tokens").mkdir()
        for path, content in FILES.items():
            (output.folder / path).write_bytes(content)
        (output.folder / "index.json").write_text("{}")
    return tmp_path / "shards"


@pytest.fixture
def remote(shards: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpFolder]:
    monkeypatch.setattr(store_module, "RETRY_WAITS_S", (0.01, 0.01, 0.01))
    with served(shards) as http:
        yield http


def open_remote(remote: HttpFolder, tmp_path: Path, max_bytes: int = 1_000_000) -> RemoteStore:
    return RemoteStore(remote.url, tmp_path / "cache", max_bytes)


def fetch(store: RemoteStore, path: str = FIRST) -> bytes:
    return store.local(path, *CONTENTS[path]).read_bytes()


def test_a_local_store_hands_out_the_files_themselves(shards: Path) -> None:
    store = LocalStore(shards)
    assert store.local(FIRST, "", 0) == shards / FIRST
    assert store.fresh("index.json") == shards / "index.json"
    assert store.record().name == "shards"
    assert store.statistics() == StoreStatistics()


def test_only_what_is_asked_for_is_fetched_and_only_once_a_machine(remote: HttpFolder, tmp_path: Path) -> None:
    first, second = open_remote(remote, tmp_path), open_remote(remote, tmp_path)
    assert fetch(first) == fetch(second) == fetch(first) == FILES[FIRST]
    assert remote.requests == {FIRST: 1}
    assert first.statistics() == StoreStatistics(fetches=1, fetched_bytes=20_000, hits=1)
    assert second.statistics() == StoreStatistics(hits=1)
    assert first.statistics().metrics() == {
        "shards/fetches": 1.0,
        "shards/fetched_bytes": 20_000.0,
        "shards/hits": 1.0,
        "shards/evictions": 0.0,
    }


def test_large_files_come_from_a_server_that_sends_only_whole_ones(remote: HttpFolder, tmp_path: Path) -> None:
    content = random.Random(1).randbytes(9_000_000)
    (remote.folder / "large").write_bytes(content)
    store = open_remote(remote, tmp_path, 20_000_000)
    assert store.local("large", hashlib.sha256(content).hexdigest(), len(content)).read_bytes() == content
    assert remote.requests["large"] == 1


@pytest.mark.parametrize("fault", ["cut", "corrupted", "unavailable"])
def test_one_fault_is_got_over(remote: HttpFolder, tmp_path: Path, fault: str) -> None:
    remote.faults[FIRST] = [fault]  # type: ignore[list-item]
    assert fetch(open_remote(remote, tmp_path)) == FILES[FIRST]


def test_a_damaged_file_is_a_sentence_and_no_file(remote: HttpFolder, tmp_path: Path) -> None:
    remote.faults[FIRST] = ["corrupted"] * 2
    with pytest.raises(UserError, match=rf"{remote.url}/{FIRST}: the SHA-256 of what came is .* the index says {CONTENTS[FIRST][0]}"):
        fetch(open_remote(remote, tmp_path))
    assert not [path for path in (tmp_path / "cache").iterdir() if path.stat().st_size]
    assert remote.requests[FIRST] == 2


def test_a_file_that_was_cut_short_at_its_place_is_a_sentence(remote: HttpFolder, tmp_path: Path) -> None:
    os.truncate(remote.folder / FIRST, 100)
    with pytest.raises(UserError, match=rf"{FIRST}: 100 bytes .* where the index says 20,000"):
        fetch(open_remote(remote, tmp_path))


def test_a_network_that_stays_down_is_a_sentence(remote: HttpFolder, tmp_path: Path) -> None:
    remote.faults[FIRST] = ["unavailable"] * 4
    with pytest.raises(UserError, match=rf"{remote.url}/{FIRST}: this file could not be fetched, and trying again did not help \(503"):
        fetch(open_remote(remote, tmp_path))
    assert remote.requests[FIRST] == 4


def test_a_server_that_refuses_is_not_asked_again(remote: HttpFolder, tmp_path: Path) -> None:
    remote.faults[FIRST] = ["forbidden"]
    with pytest.raises(UserError, match=r"this file may not be read \(403"):
        fetch(open_remote(remote, tmp_path))
    assert remote.requests[FIRST] == 1


def test_a_server_that_is_gone_is_a_sentence(shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "RETRY_WAITS_S", (0.01,))
    with served(shards) as http:
        store = open_remote(http, tmp_path)
    with pytest.raises(UserError, match="could not be fetched"):
        fetch(store)


def test_a_file_that_is_not_there_is_not_asked_for_again(remote: HttpFolder, tmp_path: Path) -> None:
    (remote.folder / FIRST).unlink()
    with pytest.raises(UserError, match=rf"{FIRST}: this file is not there; publish the shards"):
        fetch(open_remote(remote, tmp_path))
    assert remote.requests[FIRST] <= 1


def test_the_record_and_the_index_stay_what_they_were_first_also_in_copies(remote: HttpFolder, tmp_path: Path) -> None:
    store = open_remote(remote, tmp_path)
    assert store.record() == LocalStore(remote.folder).record()
    assert store.fresh("index.json").read_text() == "{}"
    (remote.folder / "index.json").write_text('{"changed": true}')
    copy = pickle.loads(pickle.dumps(store))
    assert store.fresh("index.json").read_text() == copy.fresh("index.json").read_text() == "{}"
    assert open_remote(remote, tmp_path).fresh("index.json").read_text() == '{"changed": true}'


def test_shards_that_were_never_finished_there_are_a_sentence(remote: HttpFolder, tmp_path: Path) -> None:
    (remote.folder / "stage.json").unlink()
    with pytest.raises(UserError, match=r"stage\.json: this file is not there"):
        open_remote(remote, tmp_path).record()
    (remote.folder / "stage.json").write_text("[]")
    with pytest.raises(UserError, match=r"stage\.json: this stage record is damaged"):
        open_remote(remote, tmp_path).record()


def test_a_recipe_says_where_its_shards_are(shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLM_CACHE", str(tmp_path / "downloads"))
    assert open_store(None, shards) == LocalStore(shards)
    assert LocalStore(shards).max_mapped_bytes is None
    assert shard_cache_folder() == tmp_path / "downloads" / "shards"
    monkeypatch.setenv("XLM_SHARD_CACHE", str(tmp_path / "own"))
    store = open_store(StorageSection(url=f"file://{shards}", cache_gib=0.5), tmp_path / "nothing")
    assert isinstance(store, RemoteStore)
    assert store.local(FIRST, *CONTENTS[FIRST]).parent == tmp_path / "own" / "xlm-shards"
    assert store.max_mapped_bytes == 2**26
    assert store.location == f"file://{shards}"


def test_urls_that_cannot_be_opened_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'s3s://bucket/shards', which is no kind of URL that fsspec opens .did you mean 's3"):
        RemoteStore("s3s://bucket/shards", tmp_path, 1)
    with pytest.raises(UserError, match="'/data/shards', which is no kind of URL"):
        RemoteStore("/data/shards", tmp_path, 1)


def test_a_package_that_is_missing_is_named(tmp_path: Path) -> None:
    if importlib.util.find_spec("s3fs"):
        pytest.skip("s3fs is installed here")
    with pytest.raises(UserError, match="'s3://bucket/shards', and opening it needs the package s3fs: pip install s3fs"):
        RemoteStore("s3://bucket/shards", tmp_path, 1)


def test_passwords_are_not_shown(tmp_path: Path) -> None:
    assert RemoteStore("http://user:word@host/shards", tmp_path, 1).location == "http://host/shards"


def test_a_cache_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot be written here .*XLM_SHARD_CACHE"):
        RemoteStore("memory://shards", tmp_path / "file" / "cache", 1)


def _read_for_ever(url: str, cache: Path) -> None:
    store = RemoteStore(url, cache, 70_000)  # room for three of six files
    draw = random.Random(os.getpid())
    while True:
        path = draw.choice(list(CONTENTS))
        assert fetch(store, path) == FILES[path]


def test_readers_that_are_killed_at_any_moment_leave_no_bad_file(remote: HttpFolder, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for round_number in range(3):
        readers = [SPAWN.Process(target=_read_for_ever, args=(remote.url, cache)) for _ in range(2)]
        for reader in readers:
            reader.start()
        until, asked = time.monotonic() + 60, sum(remote.requests.values())
        while sum(remote.requests.values()) < asked + 20 + round_number and time.monotonic() < until:
            time.sleep(0.001)
        for reader in readers:
            assert reader.is_alive()
            reader.kill()
            reader.join()
        whole = [path for path in cache.iterdir() if not path.name.startswith(".")]
        assert whole
        assert all(hashlib.sha256(path.read_bytes()).hexdigest() == path.name for path in whole)
        assert sum(path.stat().st_size for path in cache.iterdir()) <= 70_000
    store = RemoteStore(remote.url, cache, 70_000)
    for path in CONTENTS:
        assert fetch(store, path) == FILES[path]
