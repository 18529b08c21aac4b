"""`sweep.py` around a stand-in for pretraining, and (slow) around the real one."""

import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from xlm.runs.stage import Stage

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration"))
CONFIG = ROOT / "deepspeed_configs" / "zero1.json"
# Writes what pretraining leaves, and fails where the learning rate is 9.
STAND_IN = """
import json, sys
from pathlib import Path
sets = dict(word.split("=", 1) for word in sys.argv if word.startswith("training."))
rate = float(sets["training.optimizer.learning_rate"])
train = Path(sys.argv[sys.argv.index("--run-dir") + 1]) / "train"
train.mkdir(exist_ok=True)
with (train / "starts").open("a") as starts:
    starts.write("x")
if rate == 9.0 or sets.get("training.tokens_per_step") == "1024":
    print("error: this rate is too high."); sys.exit(2)
with (train / "metrics.jsonl").open("w") as lines:
    for step in (1, 2):
        lines.write(json.dumps({"step": step, "loss": rate * 100 + 1 / step}) + chr(10))
(train / "stage.json").write_text("{}")
"""


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("sweep", ROOT / "pipelines" / "sweep.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "sweep", module)
    spec.loader.exec_module(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")  # nobody is there, and nobody waits
    monkeypatch.setattr("xlm.tracking.tracker.FAILING_CLOSE_TIMEOUT_S", 0.5)

    from made_up_run import RECIPE

    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    for name in ("vocabulary", "shards"):
        with Stage(tmp_path / "runs" / "made-up" / name, name, {}).write():
            pass
    real = module.command_of

    def command_of(*of):
        return [sys.executable, "-c", STAND_IN, *real(*of)[2:]]

    monkeypatch.setattr(module, "command_of", command_of)

    def call(*options):
        words = ["sweep.py", "--recipe", "recipe.yaml", "--deepspeed_config", str(CONFIG), *options]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            module.main()
        return ended.value.code

    return call


def test_a_failed_point_is_told_the_others_go_on_and_finished_ones_are_skipped(sweep, tmp_path, capfd):
    rates = "training.optimizer.learning_rate=3e-3,9,1e-3"
    folder = tmp_path / "runs" / "sweep-made-up"
    for attempt in (1, 2):
        assert sweep("--set", rates, "--set", "phases.0.steps=2", "--parallel", "2") == 1
        printed = capfd.readouterr().out
        assert "learning_rate=9 failed with exit code 2" in printed
        assert "error: this rate is too high." in printed
        assert ("2 of 3 points are finished already" in printed) == (attempt == 2)
    starts = {path.parent.parent.name: path.read_text() for path in folder.glob("*/train/starts")}
    assert starts == {"learning_rate=3e-3": "x", "learning_rate=9": "xx", "learning_rate=1e-3": "x"}
    table = printed[printed.index("training.optimizer.learning_rate") :].splitlines()[:4]
    assert [line.split()[0] for line in table[1:]] == ["1e-3", "3e-3", "9"]
    assert [line.split()[-1] for line in table[1:3]] == ["finished", "finished"]
    results = {one["name"]: one for one in json.loads((folder / "results.json").read_text())}
    assert results["learning_rate=1e-3"]["loss"] == 0.6
    assert results["learning_rate=9"]["loss"] is None
    assert (folder / "sweep.png").stat().st_size > 5000
    # Another recipe for a point that is finished: it is trained again.
    assert sweep("--set", "training.optimizer.learning_rate=3e-3,1e-3", "--set", "phases.0.steps=3") == 0
    assert (folder / "learning_rate=3e-3" / "train" / "starts").read_text() == "xx"
    # Where that fails before it sets the old training aside, the point is not taken for finished.
    for _ in range(2):
        assert sweep("--set", "training.optimizer.learning_rate=3e-3,1e-3", "--set", "training.tokens_per_step=1024") == 1
    assert (folder / "learning_rate=3e-3" / "train" / "starts").read_text() == "xxxx"


def test_a_dry_run_prints_the_commands_and_starts_nothing(sweep, tmp_path, capsys):
    words = ["sweep.py", "--recipe", "recipe.yaml", "--deepspeed_config", str(CONFIG), "--dry-run", "--set", "phases.0.steps=2,3"]
    done = subprocess.run([sys.executable, str(ROOT / "pipelines" / words[0]), *words[1:]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("pretrain.py") == 2
    assert "--set phases.0.steps=3 --run-dir runs/sweep-made-up/steps=3" in done.stdout
    assert not (tmp_path / "runs" / "sweep-made-up").exists()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("parallel", ["1", "2"])
def test_points_are_runs_below_the_sweeps_run(tmp_path, parallel):
    """With the real training and the default store, a sqlite file, which points that run at a time share."""
    from made_up_run import make_run

    recipe = make_run(tmp_path)
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"} | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "pipelines" / "sweep.py"), "--recipe", str(recipe), "--run-dir", str(tmp_path / "run")]
    command += ["--deepspeed_config", str(CONFIG), "--parallel", parallel, "--set", "training.optimizer.learning_rate=1e-3,3e-3,9e-3"]
    command += ["--set", "training.micro_batch_tokens=256"]  # one rank holds all pairs of a step
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    store = sqlite3.connect(tmp_path / "mlflow.db")
    runs = dict(store.execute("select run_uuid, name from runs"))
    assert sorted(runs.values()) == ["learning_rate=1e-3", "learning_rate=3e-3", "learning_rate=9e-3", "sweep-made-up"]
    (parent,) = [run for run, name in runs.items() if name == "sweep-made-up"]
    nested = store.execute("select run_uuid, value from tags where key = 'mlflow.parentRunId'").fetchall()
    assert sorted(nested) == sorted((run, parent) for run in runs if run != parent)
    assert {status for (status,) in store.execute("select status from runs")} == {"FINISHED"}
    for run, name in runs.items():
        if run == parent:
            continue
        lines = (tmp_path / "sweep-made-up" / name / "train" / "metrics.jsonl").read_text().splitlines()
        said = [(line["step"], line["loss"]) for line in map(json.loads, lines)]
        sql = "select step, value from metrics where run_uuid = ? and key = 'loss' order by step"
        assert store.execute(sql, (run,)).fetchall() == said
    assert list((tmp_path / "mlartifacts").rglob("recipe.yaml"))
