"""Publishing: everything arrives, nothing goes up twice, and nobody reads a folder that is half there."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.storage.http_folder import served
from xlm.errors import UserError
from xlm.runs.stage import Stage, read_record
from xlm.storage import publish as publish_module
from xlm.storage.publish import MANIFEST, PublishSummary, publish
from xlm.storage.store import RemoteStore


def build(folder: Path, files: dict[str, str], inputs: str = "1") -> Path:
    with Stage(folder, "shards", {"corpus": inputs}).write() as output:
        for name, content in {"index.json": "{}", **files}.items():
            (output.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (output.folder / name).write_text(content)
    return folder


def content(text: str) -> tuple[int, str]:
    return len(text), hashlib.sha256(text.encode()).hexdigest()


def upload(folder: Path, url: str) -> PublishSummary:
    """Publish what `build` built: of the files below a folder it is known what they contain."""
    known = {path.relative_to(folder).as_posix(): content(path.read_text()) for path in folder.rglob("*/*") if path.is_file()}
    return publish(folder, url, known)


def published(folder: Path) -> dict[str, str]:
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST]
    return {path.relative_to(folder).as_posix(): path.read_text() for path in paths}


def test_everything_arrives_once(tmp_path: Path) -> None:
    here, there = build(tmp_path / "shards", {"tokens/en-0.arrow": "en", "plans/en.arrow": "plan"}), tmp_path / "there"
    size = sum(path.stat().st_size for path in here.rglob("*") if path.is_file())
    assert upload(here, f"file://{there}") == PublishSummary(uploaded=4, skipped=0, bytes=size)
    assert published(there) == published(here)
    assert upload(here, f"file://{there}") == PublishSummary(uploaded=0, skipped=4, bytes=0)
    assert RemoteStore(f"file://{there}", tmp_path / "cache", 10_000).record() == read_record(here)


def test_shards_that_changed_replace_what_was_there(tmp_path: Path) -> None:
    here, there = build(tmp_path / "shards", {"tokens/en-0.arrow": "en", "tokens/de-0.arrow": "de"}), tmp_path / "there"
    upload(here, f"file://{there}")
    (there / "notes.txt").write_text("not ours")
    build(here, {"tokens/en-0.arrow": "EN", "tokens/fr-0.arrow": "fr"}, "2")
    summary = upload(here, f"file://{there}")
    assert (summary.uploaded, summary.skipped) == (3, 1)  # en, fr and the record; the index is the same
    assert published(there) == {**published(here), "notes.txt": "not ours"}


def test_a_file_that_was_damaged_there_goes_up_again(tmp_path: Path) -> None:
    here, there = build(tmp_path / "shards", {"tokens/en-0.arrow": "en"}), tmp_path / "there"
    upload(here, f"file://{there}")
    (there / "tokens/en-0.arrow").write_text("e")
    assert upload(here, f"file://{there}").uploaded == 2  # it and the record
    assert published(there) == published(here)


def test_an_upload_that_breaks_off_is_no_finished_stage_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_module, "_MANIFEST_EVERY_S", 0.0)
    monkeypatch.setattr(publish_module, "_UPLOADS_AT_ONCE", 1)
    there = tmp_path / "there"
    here = build(tmp_path / "shards", {"tokens/a": "old", "tokens/b": "old"}, "1")
    upload(here, f"file://{there}")
    build(here, {"tokens/a": "new", "tokens/b": "new"}, "2")
    put = publish_module._Upload._put

    def broken(self: publish_module._Upload, path: str) -> None:
        if path == "tokens/b":
            raise UserError("the network is gone.")
        put(self, path)

    monkeypatch.setattr(publish_module._Upload, "_put", broken)
    with pytest.raises(UserError, match="network is gone"):
        upload(here, f"file://{there}")
    assert not (there / "stage.json").exists()
    assert list(json.loads((there / MANIFEST).read_text())) == ["index.json", "tokens/a"]
    monkeypatch.setattr(publish_module._Upload, "_put", put)
    assert upload(here, f"file://{there}").uploaded == 2
    assert published(there) == published(here)


def test_back_to_the_old_shards_after_a_broken_upload_of_new_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest must not vouch for a file that was overwritten with another one of the same size."""
    there = tmp_path / "there"
    here = build(tmp_path / "shards", {"tokens/a": "old"}, "1")
    upload(here, f"file://{there}")
    old = published(there)
    build(here, {"tokens/a": "new"}, "2")
    put = publish_module._Upload._put

    def broken(self: publish_module._Upload, path: str) -> None:
        put(self, path)
        raise UserError("killed after this file.")

    monkeypatch.setattr(publish_module._Upload, "_put", broken)
    with pytest.raises(UserError, match="killed"):
        upload(here, f"file://{there}")
    assert (there / "tokens/a").read_text() == "new"
    monkeypatch.setattr(publish_module._Upload, "_put", put)
    build(here, {"tokens/a": "old"}, "1")
    upload(here, f"file://{there}")
    assert (there / "tokens/a").read_text() == old["tokens/a"]


def test_what_cannot_be_published_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    with pytest.raises(UserError, match="has not finished"):
        upload(tmp_path / "shards", "memory://shards")
    build(tmp_path / "shards", {})
    (tmp_path / "there").mkdir()
    with (
        served(tmp_path / "there") as http,
        pytest.raises(UserError, match=r"this could not be written .* must be a place that this machine may write to"),
    ):
        upload(tmp_path / "shards", http.url)


def test_what_is_known_is_not_hashed_again_but_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = []
    sha256 = publish_module.file_sha256
    monkeypatch.setattr(publish_module, "file_sha256", lambda path: hashed.append(path.name) or sha256(path))
    here, there = build(tmp_path / "shards", {"tokens/a": "a", "tokens/b": "b"}), tmp_path / "there"
    upload(here, f"file://{there}")
    assert sorted(hashed) == ["index.json", "stage.json"]
    with pytest.raises(UserError, match=r"tokens/b: 1 bytes found, 2 bytes expected; delete this shards folder"):
        publish(here, f"file://{there}", {"tokens/b": (2, "")})
    with pytest.raises(UserError, match=r"tokens/c: no such file found, 2 bytes expected"):
        publish(here, f"file://{there}", {"tokens/c": (2, "")})
