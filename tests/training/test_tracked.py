"""What the tracker is told at the ends of a training."""

import pytest
import yaml
from made_up_run import RECIPE

import xlm.training.tracked as tracked
from xlm.config.recipe import Recipe
from xlm.runs.folder import RunFolder
from xlm.training.run_record import RunRecord, read_run_record, write_run_record


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
def folder(tmp_path):
    folder = RunFolder(tmp_path / "runs" / "point")
    folder.train.mkdir(parents=True)
    return folder


def write_record(folder, complete):
    record = RunRecord({}, "f", {}, "fp32", 1, {}, ("en",), "key", "code", {}, mlflow_complete=complete)
    write_run_record(folder, record)


def test_a_finished_run_sends_what_a_dead_server_missed_once(folder, monkeypatch):
    monkeypatch.setattr(tracked, "Tracker", Listener)
    write_record(folder.train, complete=False)
    recipe = Recipe.model_validate(RECIPE)
    tracked.send_what_mlflow_missed(recipe, folder, "the sweep's")
    assert Listener.last.told == ["start", "resume", "FINISHED"]
    assert Listener.last.about["key"] == "key"
    assert Listener.last.about["parent"] == "the sweep's"
    assert Listener.last.about["name"] == "point"
    assert yaml.safe_load(Listener.last.about["card"]().texts["recipe.yaml"])["seed"] == RECIPE["seed"]
    found = read_run_record(folder.train)
    assert (found.mlflow_complete, found.mlflow_run_id) == (True, "r1")
    Listener.last = None
    tracked.send_what_mlflow_missed(recipe, folder, "the sweep's")
    assert Listener.last is None


def test_a_training_that_fails_says_so_and_fails():
    tracker = Listener()
    with pytest.raises(RuntimeError, match="broken"), tracked.ended_as_failed(tracker):
        raise RuntimeError("broken")
    assert tracker.told == ["FAILED"]
    with tracked.ended_as_failed(tracker):
        pass
    assert tracker.told == ["FAILED"]
