"""The ladder's runner: which cells there are and what is told to whom. What a cell is, quickstart.py's tests show."""

import importlib.util
import json
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
    ladder = load_ladder(LADDER)
    cells = results.cells_of(ladder, Path("runs/results"))
    assert len(cells) == len(ladder.rungs) * 3 + len(ladder.beside)
    options = cells["mlm-seed2"].options()
    assert options[:2] == ["--recipe", "pipelines/recipes/quickstart.yaml"]
    assert options[-4:] == ["--set", "seed=2", "--run-dir", "runs/results/mlm-seed2"]
    assert "--set" not in cells["hour"].options()


def test_a_failure_ends_it_and_only_cells_of_the_ladder_share_stages(results, tmp_path, monkeypatch):
    made = []

    def make_cell(cell, base, *_):
        made.append((cell.run.root.name, base))
        if cell.run.root.name == "tlm-seed1":
            raise SystemExit(3)

    monkeypatch.setattr(results, "make_shared", lambda *_: "shared")
    monkeypatch.setattr(results, "make_cell", make_cell)
    ladder = load_ladder(LADDER)
    cells = results.cells_of(ladder, tmp_path)
    with pytest.raises(SystemExit, match="3"):
        results.make_cells(cells, ladder, tmp_path)
    assert made == [(name, "shared") for name in ("mlm-seed1", "mlm-seed2", "mlm-seed3", "tlm-seed1")]
    made.clear()
    results.make_cells({"hour": cells["hour"]}, ladder, tmp_path)
    assert made == [("hour", None)]


def test_a_dry_run_starts_nothing(tmp_path):
    command = [sys.executable, "pipelines/results.py", "--ladder", str(LADDER), "--folder", str(tmp_path / "none"), "--dry-run"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("quickstart.py") == 13
    assert not (tmp_path / "none").exists()


def test_a_rung_is_described_by_the_scores_of_its_runs(results, tmp_path, monkeypatch):
    runs = []
    for number, loss in ((1, 5.0), (2, 6.0)):
        (tmp_path / str(number)).mkdir()
        scores = {"summary": {"retrieval.top1_200": 90.0 + number}, "training": {"validation": {"validation/mlm": loss}}}
        (tmp_path / str(number) / "scores.json").write_text(json.dumps(scores), encoding="utf-8")
        runs.append(results.RunFolder(tmp_path / str(number)))
    monkeypatch.setattr(results, "rung_scores", lambda *_: {"probe": {}})
    found = results.described("mlm", "MLM", runs, None, ("de",))
    assert found["retrieval"] == 91.5
    assert found["losses"] == {"mlm": 5.5, "tlm": None}
