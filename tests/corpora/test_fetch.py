import http.server
import importlib.util
import os
import threading
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
    fetch.patience.cache_clear()
    yield tmp_path / "shelf"
    fetch.patience.cache_clear()


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
    ]:
        assert command[command.index(flag) + 1] == value
    assert command[-1] == "some-texts==1.0"
    assert "--no-deps" in command
    assert "--only-binary=:all:" in command


class Mirror(http.server.BaseHTTPRequestHandler):
    """An index of one package, asked as a proxy is: the whole address of another host in the request."""

    def do_GET(self):
        self.server.asked.append(self.path)
        name = self.path.rsplit("/", 1)[-1]
        path = self.server.shelf / name
        body = (
            path.read_bytes()
            if name
            else "".join(f'<a href="{each.name}">{each.name}</a>' for each in self.server.shelf.iterdir()).encode()
        )
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream" if name else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_a_mirror_behind_a_proxy_is_found_by_pips_own_configuration(shelf, tmp_path, monkeypatch):
    path = wheels.write_wheel(shelf, "some-texts", "1.0", {"p/de.po": "x"})
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mirror) as server:
        server.asked, server.shelf = [], shelf
        threading.Thread(target=server.serve_forever, daemon=True).start()
        configuration = tmp_path / "pip.conf"
        # No such host exists: only the proxy can answer for it.
        configuration.write_text(
            "[global]\nindex-url = http://packages.invalid/simple\ntrusted-host = packages.invalid\n"
            f"proxy = http://127.0.0.1:{server.server_port}\n",
            encoding="utf-8",
        )
        monkeypatch.setenv("PIP_CONFIG_FILE", str(configuration))
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        fetched = fetch.fetch_wheel(source_of(path), tmp_path / "cache")
        server.shutdown()
    assert fetched.read_bytes() == path.read_bytes()
    assert server.asked[0] == "http://packages.invalid/simple/some-texts/"
    assert server.asked[-1].endswith("/some_texts-1.0-py3-none-any.whl")


def test_pips_own_patience_is_the_users_where_he_has_set_it(shelf, tmp_path, monkeypatch):
    assert fetch.patience() == ("--retries", "1", "--timeout", str(fetch.TIMEOUT_S))
    configuration = tmp_path / "pip.conf"
    configuration.write_text("[global]\ntimeout = 90\n[download]\nretries = 7\n", encoding="utf-8")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(configuration))
    fetch.patience.cache_clear()
    assert fetch.patience() == ()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "90")
    fetch.patience.cache_clear()
    assert fetch.patience() == ("--retries", "1")


def test_wheels_in_a_cache_that_is_read_only_are_used(shelf, tmp_path, monkeypatch):
    path = wheels.write_wheel(tmp_path / "cache/wheels", "some-texts", "1.0", {"p/de.po": "x"})
    monkeypatch.setattr(fetch.tempfile, "TemporaryDirectory", lambda **_: (_ for _ in ()).throw(OSError(30, "Read-only file system")))
    assert fetch.fetch_wheel(source_of(path), tmp_path / "cache") == path
    with pytest.raises(UserError, match=r"the cache folder cannot be written \(Read-only file system\); set XLM_CACHE to another folder"):
        fetch.fetch_wheel(source_of(path, version="2.0"), tmp_path / "cache")
