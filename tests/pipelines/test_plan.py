"""plan.py: what a recipe will draw, from the index of its shards alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mixing.conftest import build_index, build_recipe
from xlm.runs.stage import Stage, write_json
from xlm.storage.publish import publish

SCRIPT = Path(__file__).resolve().parents[2] / "pipelines" / "plan.py"


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.yaml"
    data = build_recipe().model_dump(mode="json")
    data["shards"]["variants"] = build_index().variants
    write_json(path, data)  # JSON is YAML
    return path


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    with Stage(run / "shards", "shards", {"corpus": "1"}).write() as output:
        build_index().save(output.folder)
    return run


def plan(recipe: Path, run: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--recipe", str(recipe), "--run-dir", str(run), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_tables_are_printed_and_written_with_a_figure(recipe: Path, run_folder: Path) -> None:
    done = plan(recipe, run_folder)
    assert done.returncode == 0, done.stderr
    assert "repeats from step" in done.stdout
    assert done.stdout.splitlines()[-1] == f"plan: 200 steps; figure and all lines in {run_folder / 'plan'}"
    files = {path.name for path in (run_folder / "plan").iterdir()}
    assert files == {"plan.png", "plan.svg", "phases.csv", "corpora.csv", "languages.csv"}


def test_what_cannot_be_planned_or_written_is_said(recipe: Path, run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for options, words in (
        (("--out", str(tmp_path / "file")), "no folder can be made here; give another --out."),
        (("--set", "shards.variants=3"), "shards.variants is 3, but these shards have row plans in 2"),
    ):
        done = plan(recipe, run_folder, *options)
        assert done.returncode == 2
        assert words in done.stderr
        assert "Traceback" not in done.stderr


def test_json_is_all_that_is_printed(recipe: Path, run_folder: Path, tmp_path: Path) -> None:
    done = plan(recipe, run_folder, "--json", "--out", str(tmp_path / "out"))
    ledger = json.loads(done.stdout)
    assert ledger["steps"] == 200
    assert {total["language"] for total in ledger["languages"]} == {"en", "de", "sw"}
    assert sum(entry["rows"] for entry in ledger["entries"]) == 200 * 20
    assert (tmp_path / "out" / "plan.png").exists()
    assert not (run_folder / "plan").exists()


def test_shards_that_lie_elsewhere_are_planned_without_a_copy(
    recipe: Path, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLM_SHARD_CACHE", str(tmp_path / "cache"))
    publish(run_folder / "shards", f"file://{tmp_path}/there", {})
    storage = f'shards.storage={{"url": "file://{tmp_path}/there"}}'
    done = plan(recipe, tmp_path / "other-run", "--set", storage, "--json", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(plan(recipe, run_folder, "--json").stdout)


def test_without_shards_it_is_a_sentence(recipe: Path, tmp_path: Path) -> None:
    done = plan(recipe, tmp_path / "empty")
    assert done.returncode == 2
    assert "the stage that writes 'shards' has not finished" in done.stderr
    assert "Traceback" not in done.stderr
