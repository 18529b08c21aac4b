"""The environment is made once, anew for a new lock, and never left half made; a stand-in for Python plays pip."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "pipelines" / "environment.sh"
# Answers what environment.sh asks of a Python, and notes each call; `-m venv` copies it into the environment.
FAKE_PYTHON = """#!/usr/bin/env bash
echo "$*" >> "$CALLS"
case "$*" in
    --version) echo "Python ${FAKE_VERSION:-3.11.9}" ;;
    *version_info*) [ -z "${FAKE_OLD:-}" ] ;;
    "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    *"pip install --requirement"*) [ -z "${FAKE_OFFLINE:-}" ] ;;
esac
"""


class Project:
    """A folder with the script, a lock and a stand-in for Python."""

    def __init__(self, root: Path) -> None:
        self.root, self.calls = root, root / "calls"
        (root / "pipelines").mkdir()
        shutil.copy(SCRIPT, root / "pipelines")
        (root / "requirements.lock").write_text("numpy==2.4.6\n", encoding="utf-8")
        (root / "pyproject.toml").write_text("[project]\n", encoding="utf-8")
        self.python = root / "python"
        self.python.write_text(FAKE_PYTHON, encoding="utf-8")
        self.python.chmod(0o755)

    def make(self, **environment: str) -> tuple[int, str, list[str]]:
        """Run the script; return exit code, what it said, and the pip and venv calls."""
        self.calls.write_text("", encoding="utf-8")
        settings = {**os.environ, "PYTHON": str(self.python), "CALLS": str(self.calls), **environment}
        done = subprocess.run(
            ["bash", str(self.root / "pipelines" / "environment.sh"), ".venv"],
            env=settings,
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        calls = [line for line in self.calls.read_text(encoding="utf-8").splitlines() if "-m venv" in line or "-m pip" in line]
        return done.returncode, done.stderr, calls


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_fresh_folder_gets_an_environment_and_the_next_call_does_nothing(project: Project) -> None:
    code, _, calls = project.make()
    assert code == 0
    assert [call.split()[:4] for call in calls] == [
        ["-m", "venv", ".venv"],
        ["-m", "pip", "install", "--requirement"],
        ["-m", "pip", "install", "--no-deps"],
    ]
    assert project.make() == (0, "", [])


def test_a_new_lock_makes_everything_anew(project: Project) -> None:
    project.make()
    (project.root / ".venv" / "left_over").touch()
    (project.root / "requirements.lock").write_text("numpy==2.4.7\n", encoding="utf-8")
    code, _, calls = project.make()
    assert (code, len(calls)) == (0, 3)
    assert not (project.root / ".venv" / "left_over").exists()


def test_a_new_project_file_only_registers_the_project(project: Project) -> None:
    project.make()
    (project.root / "pyproject.toml").write_text("[project]\nname = 'xlm'\n", encoding="utf-8")
    _, _, calls = project.make()
    assert len(calls) == 1
    assert "--editable ." in calls[0]
    assert project.make()[2] == []


def test_another_python_or_a_moved_folder_makes_everything_anew(project: Project, tmp_path: Path) -> None:
    project.make()
    assert len(project.make(FAKE_VERSION="3.12.1")[2]) == 3
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("pipelines", ".venv", "requirements.lock", "pyproject.toml"):
        shutil.move(str(tmp_path / name), moved)
    project.root = moved
    assert len(project.make(FAKE_VERSION="3.12.1")[2]) == 3


def test_a_failed_install_is_one_sentence_and_leaves_nothing_that_looks_complete(project: Project) -> None:
    code, said, _ = project.make(FAKE_OFFLINE="1")
    assert code == 2
    assert "error: pip could not install requirements.lock; check that a Python package index can be reached" in said
    assert not (project.root / ".venv" / "packages.stamp").exists()
    assert len(project.make()[2]) == 3


def test_a_python_that_is_missing_or_too_old_is_one_sentence(project: Project) -> None:
    code, said, _ = project.make(PYTHON="no-such-python")
    assert (code, said.strip()) == (2, "error: 'no-such-python' was not found; install Python 3.11 or newer, or set PYTHON=...")
    code, said, _ = project.make(FAKE_OLD="1", FAKE_VERSION="3.9.2")
    assert code == 2
    assert "Python 3.9.2 found; Python 3.11 or newer is needed" in said
