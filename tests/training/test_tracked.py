"""What `pretrain.py` tells the tracker at the ends of a training."""

import importlib.util
from argparse import Namespace
from pathlib import Path

import pytest
import yaml

from tests.integration.made_up_run import RECIPE
from xlm.config.recipe import Recipe
from xlm.config.strict import load_config
from xlm.runs.cli import Invocation
from xlm.runs.folder import RunFolder
from xlm.training.run_record import RunRecord, read_run_record, write_run_record

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pretrain():
    spec = importlib.util.spec_from_file_location("pretrain", ROOT / "pipelines" / "pretrain.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Listener:
    """Takes a tracker's place and keeps what it was told."""

    run_id, is_complete = "r1", True

    def __init__(self, root=None, **about):
        self.about, self.told = about, []
        Listener.last = self

    def start(self):
        self.told.append("start")

    def resume(self):
        self.told.append("resume")

    def close(self, status, timeout_s=None):
        self.told.append(status)


@pytest.fixture
def invocation(tmp_path):
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    recipe = load_config(Recipe, tmp_path / "recipe.yaml")
    folder = RunFolder(tmp_path / "runs" / "point")
    folder.train.mkdir(parents=True)
    return Invocation(recipe, tmp_path / "recipe.yaml", folder, Namespace(parent_run="the sweep's"))


def write_record(folder, complete):
    record = RunRecord({}, "f", {}, "fp32", 1, {}, ("en",), "key", "code", {}, mlflow_complete=complete)
    write_run_record(folder, record)


def test_a_finished_run_sends_what_a_dead_server_missed_once(pretrain, invocation, monkeypatch):
    monkeypatch.setattr(pretrain, "Tracker", Listener)
    write_record(invocation.folder.train, complete=False)
    pretrain.send_what_mlflow_missed(invocation)
    assert Listener.last.told == ["start", "resume", "FINISHED"]
    assert Listener.last.about["key"] == "key"
    assert Listener.last.about["parent"] == "the sweep's"
    assert Listener.last.about["name"] == "point"
    assert yaml.safe_load(Listener.last.about["card"]().texts["recipe.yaml"])["seed"] == RECIPE["seed"]
    found = read_run_record(invocation.folder.train)
    assert (found.mlflow_complete, found.mlflow_run_id) == (True, "r1")
    Listener.last = None
    pretrain.send_what_mlflow_missed(invocation)
    assert Listener.last is None


def test_a_training_that_fails_says_so_and_fails(pretrain):
    tracker = Listener()
    with pytest.raises(RuntimeError, match="broken"), pretrain.ended_as_failed(tracker):
        raise RuntimeError("broken")
    assert tracker.told == ["FAILED"]
    with pretrain.ended_as_failed(tracker):
        pass
    assert tracker.told == ["FAILED"]
