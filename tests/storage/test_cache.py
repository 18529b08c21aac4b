"""A bounded cache shared by processes: one fetch, never a bad file, never above the bound."""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from xlm.errors import UserError
from xlm.storage import cache
from xlm.storage.cache import LOCK, PARTIAL, DamagedFileError, FileCache

SPAWN = multiprocessing.get_context("spawn")
FILE_BYTES = 1000


def content_of(number: int) -> bytes:
    return bytes([number]) * FILE_BYTES


def name_of(number: int) -> str:
    return hashlib.sha256(content_of(number)).hexdigest()


def get(files: FileCache, number: int) -> Path:
    return files.get(name_of(number), FILE_BYTES, lambda: [content_of(number)])


def not_called() -> list[bytes]:
    raise AssertionError("fetched again")


def bytes_in(folder: Path) -> int:
    total = 0
    for entry in os.scandir(folder):
        try:
            total += entry.stat().st_size
        except FileNotFoundError:
            continue
    return total


def test_a_file_is_fetched_once_and_named_by_its_content(tmp_path: Path) -> None:
    files = FileCache(tmp_path / "cache", 10 * FILE_BYTES)
    path = get(files, 1)
    assert path.name == name_of(1)
    assert path.read_bytes() == content_of(1)
    assert FileCache(tmp_path / "cache", 10 * FILE_BYTES).get(name_of(1), FILE_BYTES, not_called) == path


@pytest.mark.parametrize(
    "chunks", [[b"x" * FILE_BYTES], [content_of(1)[:-1]], [content_of(1), b"x"], []], ids=["other", "short", "long", "empty"]
)
def test_other_content_is_refused_and_leaves_nothing(tmp_path: Path, chunks: list[bytes]) -> None:
    files = FileCache(tmp_path, 10 * FILE_BYTES)
    with pytest.raises(DamagedFileError):
        files.get(name_of(1), FILE_BYTES, lambda: chunks)
    assert bytes_in(tmp_path) == 0
    assert get(files, 1).read_bytes() == content_of(1)


def test_a_fetch_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield content_of(1)[:100]
        raise ConnectionError

    with pytest.raises(ConnectionError):
        FileCache(tmp_path, 10 * FILE_BYTES).get(name_of(1), FILE_BYTES, broken)
    assert bytes_in(tmp_path) == 0


def test_a_file_larger_than_the_cache_names_both_sizes_and_the_key(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"1,000 bytes has no place in a cache of 999.*shards\.storage\.cache_gib"):
        get(FileCache(tmp_path, 999), 1)


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    files = FileCache(tmp_path, 3 * FILE_BYTES)
    for number in (1, 2, 3, 1, 4):
        get(files, number)
    assert {entry.name for entry in tmp_path.iterdir() if entry.stat().st_size} == {name_of(number) for number in (3, 1, 4)}
    assert (files.hits, files.evictions) == (1, 1)


def test_a_cached_file_that_was_cut_short_is_fetched_again(tmp_path: Path) -> None:
    files = FileCache(tmp_path, 3 * FILE_BYTES)
    os.truncate(get(files, 1), 10)
    assert get(FileCache(tmp_path, 3 * FILE_BYTES), 1).read_bytes() == content_of(1)


def test_what_others_keep_in_the_folder_is_left_alone(tmp_path: Path) -> None:
    theirs = [tmp_path / "thesis.txt", tmp_path / ".notes.partial", tmp_path / f"{name_of(9)}.txt"]
    for path in theirs:
        path.write_bytes(b"x" * FILE_BYTES)
        os.utime(path, (0, 0))
    (tmp_path / "folder").mkdir()
    files = FileCache(tmp_path, 2 * FILE_BYTES)
    for number in range(4):
        get(files, number)
    assert {path.name for path in tmp_path.iterdir()} == {*(path.name for path in theirs), "folder", LOCK, name_of(2), name_of(3)}
    assert all(path.read_bytes() == b"x" * FILE_BYTES for path in theirs)


def test_a_mapped_file_outlives_its_eviction(tmp_path: Path) -> None:
    files = FileCache(tmp_path, FILE_BYTES)
    path = get(files, 1)
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        get(files, 2)
        assert not path.exists()
        assert mapped[:] == content_of(1)


def test_a_file_just_handed_out_is_not_evicted_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "ROOM_WAIT_S", 0.1)
    holder = FileCache(tmp_path, FILE_BYTES)
    path = get(holder, 1)
    other = FileCache(tmp_path, FILE_BYTES)
    with pytest.raises(UserError, match=r"other processes are using all of it; raise shards\.storage\.cache_gib"):
        get(other, 2)
    assert path.exists()
    del holder
    assert get(other, 2).exists()


def _die_while_fetching(folder: Path, started: Path) -> None:
    def endless() -> Iterator[bytes]:
        yield content_of(1)[:500]
        started.touch()
        time.sleep(60)

    FileCache(folder, 2 * FILE_BYTES).get(name_of(1), FILE_BYTES, endless)


def _kill_one_fetching(folder: Path, started: Path) -> None:
    process = SPAWN.Process(target=_die_while_fetching, args=(folder, started))
    process.start()
    _wait_for(started.exists)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def test_what_a_killed_fetch_left_is_never_a_file_and_is_taken_over(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    _kill_one_fetching(folder, tmp_path / "started")
    assert (folder / f".{name_of(1)}{PARTIAL}").exists()
    assert not (folder / name_of(1)).exists()
    assert get(FileCache(folder, 2 * FILE_BYTES), 1).read_bytes() == content_of(1)
    assert bytes_in(folder) == FILE_BYTES


def test_what_a_killed_fetch_left_gives_its_room_to_others(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    _kill_one_fetching(folder, tmp_path / "started")
    files = FileCache(folder, 2 * FILE_BYTES)
    for number in (2, 3):
        get(files, number)
    assert {entry.name for entry in folder.iterdir() if entry.stat().st_size} == {name_of(2), name_of(3)}


def _fetch_slowly(folder: Path, fetched: Path) -> None:
    def slow() -> Iterator[bytes]:
        with fetched.open("a") as stream:
            stream.write("x")
        yield content_of(1)[:500]
        time.sleep(0.5)
        yield content_of(1)[500:]

    assert FileCache(folder, 2 * FILE_BYTES).get(name_of(1), FILE_BYTES, slow).read_bytes() == content_of(1)


def test_of_several_processes_one_fetches(tmp_path: Path) -> None:
    _run_together(4, _fetch_slowly, tmp_path / "cache", tmp_path / "fetched")
    assert (tmp_path / "fetched").read_text() == "x"


def _read_at_random(folder: Path, seed_folder: Path) -> None:
    files = FileCache(folder, 5 * FILE_BYTES)
    draw = random.Random(os.getpid())
    for _ in range(150):
        number = draw.randrange(20)
        assert get(files, number).read_bytes() == content_of(number)
    assert files.evictions > 0


def test_readers_that_evict_from_each_other_never_exceed_the_bound(tmp_path: Path) -> None:
    folder, most = tmp_path / "cache", 0

    def look() -> None:
        nonlocal most
        if (folder / LOCK).exists():
            with (folder / LOCK).open("a") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX)  # nothing is renamed while the folder is read
                most = max(most, bytes_in(folder))

    _run_together(4, _read_at_random, folder, tmp_path, meanwhile=look)
    assert 0 < most <= 5 * FILE_BYTES
    assert bytes_in(folder) <= 5 * FILE_BYTES


def test_a_fetcher_does_not_wait_for_readers_of_what_another_has_fetched(tmp_path: Path) -> None:
    files = FileCache(tmp_path, 6 * FILE_BYTES)
    name = name_of(1)
    partial = tmp_path / f".{name}.partial"
    partial.write_bytes(b"")
    with partial.open("r+b") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)  # as a reader holds the file once it has its final name
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(get, files, 1)
            time.sleep(0.3)
            assert not waiting.done()
            partial.write_bytes(content_of(1))
            partial.rename(tmp_path / name)
            assert waiting.result(timeout=5).read_bytes() == content_of(1)


def test_threads_share_a_cache_object(tmp_path: Path) -> None:
    files = FileCache(tmp_path, 6 * FILE_BYTES)

    def read(seed: int) -> bool:
        draw = random.Random(seed)
        return all(get(files, number).read_bytes() == content_of(number) for number in (draw.randrange(20) for _ in range(100)))

    for first in (0, 4):  # the second four are other threads; what the first held is let go
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(read, range(first, first + 4)))
    assert bytes_in(tmp_path) <= 6 * FILE_BYTES


def _run_together(
    processes: int, work: Callable[[Path, Path], None], folder: Path, other: Path, meanwhile: Callable[[], None] = lambda: None
) -> None:
    running = [SPAWN.Process(target=work, args=(folder, other)) for _ in range(processes)]
    for process in running:
        process.start()
    while any(process.is_alive() for process in running):
        meanwhile()
        time.sleep(0.001)
    assert [process.exitcode for process in running] == [0] * processes


def _wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)
