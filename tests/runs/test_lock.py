"""A stage has one writer at a time, and a killed one blocks nobody."""

import errno
import signal
import subprocess
import sys
import textwrap

import pytest

from xlm.errors import UserError
from xlm.runs import lock
from xlm.runs.lock import only_writer
from xlm.runs.stage import Stage

HOLD = textwrap.dedent("""
    import sys, time
    from pathlib import Path
    from xlm.runs.stage import Stage
    with Stage(Path(sys.argv[1]) / "corpus", "corpus", {"manifest": "a"}).write() as output:
        (output.folder / "half").write_text("x")
        print("writing", flush=True)
        time.sleep(120)
""")
SECOND = textwrap.dedent("""
    import sys
    from pathlib import Path
    from xlm.errors import exits_cleanly
    from xlm.runs.stage import Stage
    @exits_cleanly
    def main():
        with Stage(Path(sys.argv[1]) / "corpus", "corpus", {"manifest": "a"}).write():
            pass
    main()
""")


@pytest.fixture
def writer(tmp_path):
    """Another process in the middle of writing ``corpus``."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "writing\n"
        yield process
        process.kill()


def test_the_second_command_ends_with_one_sentence_and_touches_nothing(tmp_path, writer):
    second = subprocess.run([sys.executable, "-c", SECOND, str(tmp_path)], capture_output=True, text=True, check=False)
    assert second.returncode == 2
    sentence = "another process is writing 'corpus' in this run folder; wait for it or use another --run-dir."
    assert second.stderr == f"error: {tmp_path}: {sentence}\n"
    assert (tmp_path / ".corpus.partial" / "half").read_text() == "x"


def test_other_stages_and_other_run_folders_are_free(tmp_path, writer):
    for folder in (tmp_path / "shards", tmp_path / "other" / "corpus"):
        with Stage(folder, folder.name, {"made": "up"}).write():
            pass
        assert folder.is_dir()


def test_a_killed_writer_leaves_no_stale_lock(tmp_path, writer):
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    with Stage(tmp_path / "corpus", "corpus", {"manifest": "a"}).write() as output:
        assert not list(output.folder.iterdir())
    assert (tmp_path / ".lock-corpus").exists()


def test_an_error_gives_the_lock_back(tmp_path):
    def fail():
        with only_writer(tmp_path / "train", "train"):
            raise RuntimeError

    for _ in range(2):
        with pytest.raises(RuntimeError):
            fail()


def test_where_there_are_no_locks_work_goes_on(tmp_path, monkeypatch):
    def refuse(stream, operation):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    with only_writer(tmp_path / "train", "train"):
        pass
    monkeypatch.setattr(lock, "fcntl", None)
    with only_writer(tmp_path / "train", "train"), pytest.raises(UserError), only_writer(tmp_path / "train", "train"):
        raise UserError("of the work, not of the lock")
