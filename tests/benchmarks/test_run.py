"""Benchmarks are found, run apart from each other, and a failed one is not passed off as measured."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from xlm.errors import UserError

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "run.py"
WRITES = """
import json, pathlib
def main():
    folder = pathlib.Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    (folder / "fast.json").write_text(json.dumps({"ratios": {"tokens": 2.5}}))
if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def run() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmarks_run", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "fast.py").write_text(WRITES, encoding="utf-8")
    (tmp_path / "broken.py").write_text("\ndef main():\n    pass\nraise SystemExit(3)\n", encoding="utf-8")
    (tmp_path / "results.py").write_text("\ndef main():\n    pass\n", encoding="utf-8")
    (tmp_path / "notes.py").write_text("NOTHING = 1\n", encoding="utf-8")
    return tmp_path


def test_files_with_a_main_are_benchmarks(run: ModuleType, folder: Path) -> None:
    assert run.benchmark_names(folder) == ["broken", "fast"]


def test_a_benchmark_runs_and_shows_its_ratio(run: ModuleType, folder: Path) -> None:
    written = run.run_benchmark("fast", folder)
    assert written == {"ratios": {"tokens": 2.5}}
    assert run.ratio_lines("fast", written)[0].split() == ["fast", "tokens", "2.50"]


def test_a_failed_benchmark_with_an_old_result_counts_as_failed(run: ModuleType, folder: Path) -> None:
    (folder / "results").mkdir()
    (folder / "results" / "broken.json").write_text('{"ratios": {"tokens": 9.0}}', encoding="utf-8")
    assert run.run_benchmark("broken", folder) is None
    assert "failed" in run.ratio_lines("broken", None)[0]


def test_an_unknown_name_is_one_sentence(run: ModuleType) -> None:
    with pytest.raises(UserError, match=r"no benchmark 'dat' \(did you mean 'data'\?\); there are: data, train\."):
        run.chosen(["dat"], ["data", "train"])
    assert run.chosen([], ["data", "train"]) == ["data", "train"]
