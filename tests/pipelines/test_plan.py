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
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


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


@pytest.mark.slow
def test_memory_of_a_preset_is_a_line_for_each_deepspeed_file_without_shards() -> None:
    command = [sys.executable, str(SCRIPT), "--memory", "--preset", "small-256x6", "--ranks", "4", "--precision", "bf16"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    first, heading, *lines = done.stdout.splitlines()
    assert "GiB of each of 4 ranks in bf16: 2 micro-batches of 16,384 tokens" in first
    assert heading.split()[:3] == ["DeepSpeed", "file", "weights"]
    rows = {line.split()[0]: line.split()[1:] for line in lines}
    assert set(rows) == {path.name for path in SCRIPT.parents[1].glob("deepspeed_configs/*.json")}
    assert rows["zero0.json"] == ["not", "in", "bf16"]
    on_device = {name: float(cells[-2]) for name, cells in rows.items() if name != "zero0.json"}
    assert on_device["zero1.json"] > on_device["zero2.json"] > on_device["zero2_offload.json"]


def test_memory_takes_a_recipes_own_numbers(recipe: Path, tmp_path: Path) -> None:
    zero = tmp_path / "zero.json"
    zero.write_text('{"zero_optimization": {"stage": 2}}')
    vocabulary = tmp_path / "vocabulary.yaml"
    write_json(vocabulary, {"size": 5000})
    command = [sys.executable, str(SCRIPT), "--memory", "--recipe", str(recipe), "--set", f"vocabulary={vocabulary}", "--set"]
    command += ["training.micro_batch_tokens=512", "--deepspeed_config", str(zero), "--stage", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert "no DeepSpeed file is of stage 3" in done.stderr
    done = subprocess.run([*command[:-2], "--ranks", "2"], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "micro-batches of 512 tokens" in done.stdout
    assert "5,000 pieces" in done.stdout
    every = [*command[:-4], "--set", "training.optimizer={kind: lamb, learning_rate: 1e-3}"]
    done = subprocess.run(every, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "zero3.json" in done.stdout
    assert "left out: " in done.stdout.splitlines()[-1]
    assert "is proved with training.optimizer.kind adamw alone, but the recipe's is lamb" in done.stdout
