"""A stage is complete or invisible, is skipped when nothing changed, and is made anew when something did."""

import json
import signal
import subprocess
import sys
import textwrap

import pytest

from xlm.errors import UserError
from xlm.runs.stage import Stage, read_record, write_json


def stage(tmp_path, **inputs):
    return Stage(tmp_path / "corpus", "corpus", inputs or {"manifest": "a"})


def test_what_was_written_appears_with_its_record(tmp_path):
    made = stage(tmp_path)
    assert not made.is_done()
    with made.write() as output:
        (output.folder / "text").write_text("hello")
        output.summary["lines"] = 1
        assert not (tmp_path / "corpus").exists()
    assert (tmp_path / "corpus" / "text").read_text() == "hello"
    record = read_record(tmp_path / "corpus")
    assert (record.name, record.summary) == ("corpus", {"lines": 1})
    assert record.peak_memory_bytes > 1_000_000
    assert made.is_done()
    assert not stage(tmp_path, manifest="b").is_done()


def test_a_changed_input_replaces_the_folder_whole(tmp_path):
    with stage(tmp_path).write() as output:
        (output.folder / "old").write_text("x")
    with stage(tmp_path, manifest="b").write() as output:
        (output.folder / "new").write_text("x")
    assert sorted(path.name for path in (tmp_path / "corpus").iterdir()) == ["new", "stage.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock-corpus", "corpus"]


def test_an_error_leaves_the_old_result_and_nothing_that_looks_complete(tmp_path):
    with stage(tmp_path).write() as output:
        (output.folder / "old").write_text("x")

    def fail():
        with stage(tmp_path, manifest="b").write() as output:
            (output.folder / "half").write_text("x")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert stage(tmp_path).is_done()
    assert not stage(tmp_path, manifest="b").is_done()


def test_killed_with_sigkill_it_is_invisible_and_the_next_run_clears_up(tmp_path):
    script = textwrap.dedent("""
        import os, signal, sys
        from pathlib import Path
        from xlm.runs.stage import Stage
        with Stage(Path(sys.argv[1]) / "corpus", "corpus", {"manifest": "a"}).write() as output:
            (output.folder / "half").write_text("x")
            os.kill(os.getpid(), signal.SIGKILL)
    """)
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "corpus").exists()
    with stage(tmp_path).write() as output:
        assert list(output.folder.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock-corpus", "corpus"]


def test_missing_and_damaged_records_say_what_to_do(tmp_path):
    with pytest.raises(UserError, match=r"run pipelines/build_corpus\.py first"):
        read_record(tmp_path / "corpus")
    (tmp_path / "corpus").mkdir()
    for text in (b"{", b"{}", b"[]", b"\xff\x00"):
        (tmp_path / "corpus" / "stage.json").write_bytes(text)
        with pytest.raises(UserError, match="damaged"):
            read_record(tmp_path / "corpus")
        assert not stage(tmp_path).is_done()


def test_a_folder_filled_in_place_is_marked_at_the_end(tmp_path):
    (tmp_path / "corpus").mkdir()
    stage(tmp_path).finish_in_place({"steps": 3}, wall_s=1.5, peak_memory_bytes=7)
    assert stage(tmp_path).is_done()
    assert read_record(tmp_path / "corpus").summary == {"steps": 3}


def test_json_is_replaced_whole(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"ü": 1})
    write_json(path, {"ü": 2})
    assert json.loads(path.read_text(encoding="utf-8")) == {"ü": 2}
    assert [found.name for found in tmp_path.iterdir()] == ["a.json"]
