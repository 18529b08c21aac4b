"""Promise 2 with the real launcher and two ranks: killed anywhere, the same command gives the very same run."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from made_up_run import make_run, write_vocabulary

from xlm.runs.folder import RunFolder
from xlm.training.checkpoint import latest_checkpoint, load_model_weights

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
NOT_OF_THE_CURVE = {"tokens_per_second", "wall_s", "peak_memory_bytes"}


def launch(recipe, run, *, kill=None, overrides=(), config="zero2.json", timeout_s=150):
    """Start pretraining as a user does; returns its exit code and all it printed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = HERE / "killed_pretrain.py" if kill else ROOT / "pipelines" / "pretrain.py"
    command = [sys.executable, str(Path(sys.executable).with_name("deepspeed")), "--hostfile", os.devnull, "--num_accelerators", "2"]
    command += ["--master_port", str(port), str(script), "--recipe", str(recipe), "--run-dir", str(run)]
    command += ["--deepspeed_config", str(ROOT / "deepspeed_configs" / config)]
    for override in overrides:
        command += ["--set", override]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": str(ROOT)}
    environment.pop("MLFLOW_TRACKING_URI", None)
    if kill:
        environment["KILL"] = kill
    done = subprocess.run(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
        cwd=run.parent,
    )
    return done.returncode, done.stdout


def curve(run):
    lines = [json.loads(line) for line in (run / "train" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in line.items() if name not in NOT_OF_THE_CURVE} for line in lines]


@pytest.fixture(scope="module")
def unkilled(tmp_path_factory):
    root = tmp_path_factory.mktemp("unkilled")
    recipe = make_run(root)
    code, printed = launch(recipe, root / "run")
    assert code == 0, printed
    return recipe, root / "run", printed


def copy_without_training(unkilled, root):
    recipe, run, _ = unkilled
    shutil.copytree(run, root / "run", ignore=shutil.ignore_patterns("train"))
    return recipe, root / "run"


def test_killed_anywhere_the_same_command_gives_the_same_run(unkilled, tmp_path):
    recipe, run = copy_without_training(unkilled, tmp_path)
    # In the middle of step 5, before rank 1 writes its part of step 6, at SIGTERM, and between the last byte
    # of a checkpoint and its name.
    for kill, steps in [("step:1:10", 3), ("save:1:1", 3), ("terminate:1:4", 5), ("rename:0:1", 5)]:
        code, printed = launch(recipe, run, kill=kill)
        assert code != 0, printed
        latest = latest_checkpoint(run / "train")
        assert latest is not None, printed
        assert latest.name == f"step-{steps:08d}", f"{kill}: {printed}"
    code, printed = launch(recipe, run)
    assert code == 0, printed

    assert curve(run) == curve(unkilled[1])
    assert [line["step"] for line in curve(run)] == [2, 4, 6, 8, 10, 12, 13]
    found, wanted = (load_model_weights(latest_checkpoint(folder / "train")) for folder in (run, unkilled[1]))
    assert found.step == wanted.step == 13
    assert all(torch.equal(found.state_dict[name], wanted.state_dict[name]) for name in wanted.state_dict)
    assert not list((run / "train" / "checkpoints").glob("*.partial"))
    one_mlflow_run(run)


def one_mlflow_run(run):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{run.parent / 'mlflow.db'}")
    (tracked,) = client.search_runs([client.get_experiment_by_name("xlm").experiment_id])
    assert tracked.info.status == "FINISHED"
    assert tracked.info.run_id == json.loads((run / "train" / "run.json").read_text(encoding="utf-8"))["mlflow_run_id"]
    assert tracked.data.params["seed"] == "5"
    history = [(metric.step, metric.value) for metric in client.get_metric_history(tracked.info.run_id, "loss")]
    assert sorted(history) == [(line["step"], line["loss"]) for line in curve(run)]


def test_a_finished_run_says_so_and_shows_its_summary(unkilled):
    recipe, run, printed = unkilled
    record = json.loads((run / "train" / "stage.json").read_text(encoding="utf-8"))
    about = record["summary"]
    assert about["steps"] == 13
    assert about["world_size"] == 2
    assert about["precision"] == "bf16"
    assert set(about["tokens_by_language"]) == {"en", "de"}
    assert sum(about["tokens_by_language"].values()) == about["tokens"] > 0
    assert about["losses"]["loss"] > 0
    assert record["wall_s"] > 0
    assert record["peak_memory_bytes"] > 2**27
    assert "pretraining: 13 steps" in printed
    assert "Traceback" not in printed
    code, again = launch(recipe, run)
    assert code == 0
    assert again.count("already done") == 1


@pytest.fixture
def stopped(unkilled, tmp_path):
    """A run in the middle: trained, but not finished."""
    shutil.copytree(unkilled[1], tmp_path / "run")
    (tmp_path / "run" / "train" / "stage.json").unlink()
    return unkilled[0], tmp_path / "run"


def assert_one_sentence(code, printed, sentence):
    assert code == 2, printed
    assert printed.count("error: ") - printed.count("[ERROR]") <= 1 or printed.count(sentence) == 1, printed
    assert printed.count(sentence) == 1, printed
    assert "Traceback" not in printed


def test_a_checkpoint_of_another_model_is_one_sentence(stopped):
    code, printed = launch(*stopped, overrides=["model.width=32"])
    assert_one_sentence(code, printed, "the run in this folder was started with model.width = 16, the recipe now says 32")


def test_another_precision_is_one_sentence(stopped):
    code, printed = launch(*stopped, overrides=["training.precision=fp32"])
    assert_one_sentence(code, printed, "the recipe asks for training.precision fp32 but this run was started in bf16")


def test_shards_of_another_vocabulary_are_one_sentence(stopped):
    recipe, run = stopped
    before = json.loads((run / "vocabulary" / "vocabulary.json").read_text(encoding="utf-8"))["fingerprint"]
    after = write_vocabulary(RunFolder(run), seed=2).fingerprint
    code, printed = launch(recipe, run)
    assert code == 2, printed
    assert printed.count("error: ") >= 1
    assert before in printed
    assert after in printed
    assert "Traceback" not in printed
