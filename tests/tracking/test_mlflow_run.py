"""Runs in a real sqlite store."""

import subprocess
import sys

import pytest
from mlflow.exceptions import MlflowException

from xlm.tracking.delivery import RejectedError
from xlm.tracking.mlflow_run import PARENT_TAG, MlflowRun, flatten

# What each of several processes does with a store that none has made yet.
WRITER = """
import sys, time
from xlm.tracking.tracker import Tracker
from pathlib import Path
import xlm.tracking.tracker as module
module.FLUSH_INTERVAL_S = 0.05
tracker = Tracker(Path(sys.argv[1]) / sys.argv[2], key=sys.argv[2], name=sys.argv[2])
tracker.start()
for step in range(100):
    tracker.log(step, {"loss": step / 3})
    time.sleep(0.01)
tracker.flush(300)
tracker.close()
print(tracker.is_complete)
"""


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}"


def test_a_child_is_shown_below_a_parent_that_is_made_once(uri):
    children = [MlflowRun(uri, f"child {number}", "child", parent="parent") for number in (1, 2)]
    parent = MlflowRun(uri, "parent", "parent")
    assert not parent.is_new
    for child in children:
        assert child._client.get_run(child.run_id).data.tags[PARENT_TAG] == parent.run_id


def test_of_doubles_the_used_one_counts_and_the_empty_one_goes(uri):
    """A call that was given up arrives after its repetition, with an earlier start."""
    run = MlflowRun(uri, "doubled", "first", {"seed": 1})
    late = run._client.create_run(run._experiment, start_time=1, tags={"xlm.training_run": "doubled"}).info.run_id
    again = MlflowRun(uri, "doubled", "first", {"seed": 1})
    assert again.run_id == run.run_id != late
    again.end("FINISHED")
    assert [found.info.run_id for found in again._with_key("doubled")] == [run.run_id]


def test_a_run_that_somebody_deleted_takes_its_metrics_when_it_is_restored(uri):
    run = MlflowRun(uri, "deleted", "deleted")
    metric = ("loss", 1.0, 1, 1)
    run._client.delete_run(run.run_id)
    with pytest.raises(MlflowException, match="must be in the 'active' state"):
        run.send([metric])
    run._client.restore_run(run.run_id)
    run.send([metric])
    assert run.steps_of("loss") == {1}
    with pytest.raises(RejectedError):
        run.send([("a name with \\ and ?", 1.0, 1, 1)])


def test_parameters_that_a_cut_call_left_out_are_added(uri):
    run = MlflowRun(uri, "parameters", "n", {f"p{number}": number for number in range(150)})
    assert len(run._client.get_run(run.run_id).data.params) == 150
    MlflowRun(uri, "parameters", "n", {"p0": 7, "q": 1})
    parameters = run._client.get_run(run.run_id).data.params
    assert (parameters["p0"], parameters["q"]) == ("0", "1")


@pytest.mark.slow
def test_processes_share_a_new_sqlite_store(tmp_path):
    """What a sweep without a server does: four at a time make the store, the experiment, and write."""
    names = ["a", "b", "c", "d"]
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name], stdout=subprocess.PIPE, text=True) for name in names]
    assert [writer.communicate()[0].strip() for writer in writers] == ["True"] * 4
    for name in names:
        run = MlflowRun(f"sqlite:///{tmp_path / 'mlflow.db'}", name, name)
        assert not run.is_new
        history = run._client.get_metric_history(run.run_id, "loss")
        assert sorted((metric.step, metric.value) for metric in history) == [(step, step / 3) for step in range(100)]


def test_flatten_names_nested_values():
    assert flatten({"a": {"b": [1, {"c": 2}]}, "d": None}) == {"a.b.0": 1, "a.b.1.c": 2, "d": None}
