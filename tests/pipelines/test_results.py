"""The ladder's runner: which cells there are and what is told to whom. What a cell is, quickstart.py's tests show."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from xlm.config.ladder import load_ladder

ROOT = Path(__file__).resolve().parents[2]
LADDER = ROOT / "pipelines" / "ladders" / "quickstart.yaml"


@pytest.fixture
def results(monkeypatch):
    monkeypatch.chdir(ROOT)
    spec = importlib.util.spec_from_file_location("pipelines_results", ROOT / "pipelines" / "results.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_a_cell_is_a_rung_with_a_seed(results):
    ladder, _ = load_ladder(LADDER)
    cells = results.cells_of(ladder, Path("runs/results"))
    assert len(cells) == len(ladder.rungs) * 3 + len(ladder.beside)
    options = cells["mlm-seed2"].options()
    assert options[:2] == ["--recipe", "pipelines/recipes/quickstart.yaml"]
    assert options[-4:] == ["--set", "seed=2", "--run-dir", "runs/results/mlm-seed2"]
    assert "--set" not in cells["hour"].options()


def test_a_failure_is_named_and_only_cells_of_the_ladder_share_stages(results, tmp_path, monkeypatch):
    made = []

    def make_cell(cell, base, *_):
        made.append((cell.run.root.name, base))
        return int(cell.run.root.name == "tlm-seed1")

    monkeypatch.setattr(results, "make_shared", lambda *_: "shared")
    monkeypatch.setattr(results, "make_cell", make_cell)
    ladder, _ = load_ladder(LADDER)
    assert results.make_cells(results.cells_of(ladder, tmp_path), ladder, tmp_path) == ["tlm-seed1"]
    assert len(made) == 13
    assert made[:2] == [("mlm-seed1", "shared"), ("mlm-seed2", "shared")]
    assert made[-1] == ("hour", None)


def test_a_ladder_whose_cells_would_not_share_is_refused_before_anything_starts(tmp_path):
    text = LADDER.read_text(encoding="utf-8").replace(
        "title: MLM\n    set:", "title: MLM\n    set:\n      - vocabulary=vocab/smoke.yaml", 1
    )
    (tmp_path / "ladder.yaml").write_text(text, encoding="utf-8")
    command = [sys.executable, "pipelines/results.py", "--ladder", str(tmp_path / "ladder.yaml"), "--folder", str(tmp_path / "none")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "'mlm-seed1' changes vocabulary, which all runs share" in done.stderr
    assert not (tmp_path / "none").exists()


def test_a_dry_run_starts_nothing(tmp_path):
    command = [sys.executable, "pipelines/results.py", "--ladder", str(LADDER), "--folder", str(tmp_path / "none"), "--dry-run"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("quickstart.py") == 13
    assert not (tmp_path / "none").exists()
