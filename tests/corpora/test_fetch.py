import importlib.util
import os
import time
from pathlib import Path

import pytest

from xlm.corpora import fetch
from xlm.corpora.manifest import WheelSource
from xlm.errors import UserError

specification = importlib.util.spec_from_file_location("corpora_wheels", Path(__file__).with_name("wheels.py"))
wheels = importlib.util.module_from_spec(specification)
specification.loader.exec_module(wheels)


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A folder that pip finds wheels in, and no index: the user's configuration decides where packages come from."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "shelf"))
    return tmp_path / "shelf"


def source_of(path, **changes):
    values = {"name": "some-texts", "kind": "wheel", "version": "1.0", "licence": "MIT", "homepage": "https://example.org"}
    values |= {"sha256": wheels.sha256(path), "languages": {"de": "de"}, "role": "task"}
    return WheelSource(**(values | changes))


def test_a_wheel_is_fetched_once_and_checked(shelf, tmp_path, monkeypatch):
    path = wheels.write_wheel(shelf, "some-texts", "1.0", {"p/de.po": "x"})
    fetched = fetch.fetch_wheel(source_of(path), tmp_path / "cache")
    assert fetched == tmp_path / "cache/wheels/some_texts-1.0-py3-none-any.whl"
    assert fetched.read_bytes() == path.read_bytes()
    assert [entry.name for entry in fetched.parent.iterdir()] == [fetched.name]

    def no_pip(*_):
        raise AssertionError("pip was called although the wheel is cached")

    monkeypatch.setattr(fetch, "_pip_download", no_pip)
    assert fetch.fetch_wheel(source_of(path), tmp_path / "cache") == fetched


def test_a_wrong_checksum_names_both_and_keeps_nothing(shelf, tmp_path):
    path = wheels.write_wheel(shelf, "some-texts", "1.0", {"p/de.po": "x"})
    with pytest.raises(UserError) as error:
        fetch.fetch_wheel(source_of(path, sha256="1" * 64), tmp_path / "cache")
    assert wheels.sha256(path) in str(error.value)
    assert "1" * 64 in str(error.value)
    assert list((tmp_path / "cache/wheels").iterdir()) == []


def test_a_cached_wheel_that_is_not_the_declared_one_is_named(shelf, tmp_path):
    path = wheels.write_wheel(tmp_path / "cache/wheels", "some-texts", "1.0", {"p/de.po": "x"})
    with pytest.raises(UserError, match=r"some_texts-1\.0-py3-none-any\.whl: this cached wheel has SHA-256"):
        fetch.fetch_wheel(source_of(path, sha256="1" * 64), tmp_path / "cache")


def test_a_package_that_no_index_has_is_named_with_the_way_out(shelf, tmp_path):
    path = wheels.write_wheel(shelf, "some-texts", "1.0", {})
    with pytest.raises(UserError, match=r"some-texts==2\.0 could not be fetched \(No matching distribution.*by hand") as error:
        fetch.fetch_wheel(source_of(path, version="2.0"), tmp_path / "cache")
    assert str(tmp_path / "cache/wheels") in str(error.value)
    assert "\n" not in str(error.value)


def test_without_a_network_it_fails_soon_with_one_sentence(shelf, tmp_path, monkeypatch):
    path = wheels.write_wheel(shelf, "other", "1.0", {})
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # the discard port: nobody listens
    started = time.monotonic()
    with pytest.raises(UserError, match=r"some-texts==1\.0 could not be fetched, because no Python package index was reachable"):
        fetch.fetch_wheel(source_of(path), tmp_path / "cache")
    assert time.monotonic() - started < 30


def test_a_cache_that_cannot_be_written_is_one_sentence(shelf, tmp_path):
    path = wheels.write_wheel(shelf, "some-texts", "1.0", {})
    (tmp_path / "cache").write_text("a file where the folder should be", encoding="utf-8")
    with pytest.raises(UserError, match="set XLM_CACHE to another folder"):
        fetch.fetch_wheel(source_of(path), tmp_path / "cache")


def test_the_manifest_decides_the_flags(tmp_path):
    path = wheels.write_wheel(tmp_path, "some-texts", "1.0", {})
    command = fetch.pip_command(source_of(path, platform="manylinux_2_28_x86_64", implementation="cp", python_version="3.13"), tmp_path)
    for flag, value in [
        ("--python-version", "3.13"),
        ("--platform", "manylinux_2_28_x86_64"),
        ("--implementation", "cp"),
        ("--retries", "1"),
    ]:
        assert command[command.index(flag) + 1] == value
    assert command[-1] == "some-texts==1.0"
    assert "--no-deps" in command
    assert "--only-binary=:all:" in command
