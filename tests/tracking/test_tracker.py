import sqlite3
import time

import pytest

from xlm.tracking.tracker import Tracker, default_tracking_uri, flatten


@pytest.fixture(autouse=True)
def _no_server(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A folder of runs with a fresh store, whose making takes seconds."""
    root = tmp_path_factory.mktemp("runs")
    tracker = Tracker(root / "first", key="first", name="first", parameters={"model": {"width": 8, "betas": [0.9, 0.98]}})
    tracker.start()
    tracker.log(1, {"loss": 2.5})
    tracker.log(2, {"loss": 2.25, "loss/mlm/zh-Hans": 3.0})
    tracker.close("KILLED")
    return root, tracker.run_id


def client(root):
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=default_tracking_uri(root / "first"))


def history(root, run_id, name):
    return sorted((metric.step, metric.value) for metric in client(root).get_metric_history(run_id, name))


def test_metrics_and_parameters_arrive(store):
    root, run_id = store
    run = client(root).get_run(run_id)
    assert run.info.run_name == "first"
    assert run.info.status == "KILLED"
    assert run.data.params == {"model.width": "8", "model.betas.0": "0.9", "model.betas.1": "0.98"}
    assert history(root, run_id, "loss") == [(1, 2.5), (2, 2.25)]
    assert history(root, run_id, "loss/mlm/zh-Hans") == [(2, 3.0)]


def test_a_resumed_run_is_the_same_run_and_counts_no_step_twice(store):
    root, run_id = store
    tracker = Tracker(root / "first", key="first", name="first", parameters={"model": {"width": 9}})
    tracker.start()
    for step in (1, 2, 3):
        tracker.log(step, {"again": step / 2})
    tracker.close()
    assert tracker.run_id == run_id
    assert history(root, run_id, "again") == [(3, 1.5)]
    assert client(root).get_run(run_id).info.status == "FINISHED"
    assert client(root).get_run(run_id).data.params["model.width"] == "8"


def test_figures_are_attached_without_training(store, tmp_path):
    root, run_id = store
    figure = tmp_path / "losses.png"
    figure.write_bytes(b"png")
    Tracker(root / "first", key="first", name="first").log_figures([figure])
    assert [artifact.path for artifact in client(root).list_artifacts(run_id, "figures")] == ["figures/losses.png"]


def test_more_metrics_than_a_call_takes(store):
    root, _ = store
    tracker = Tracker(root / "many", key="many", name="many")
    tracker.start()
    for step in range(3):
        tracker.log(step, {f"metric {number}": float(number) for number in range(600)})
    tracker.close()
    assert len(client(root).get_run(tracker.run_id).data.metrics) == 601


def test_a_store_that_does_not_answer_is_a_warning_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'no' / 'folder' / 'mlflow.db'}")
    (tmp_path / "no").write_text("a file where a folder is needed", encoding="utf-8")
    tracker = Tracker(tmp_path / "run", key="k", name="n")
    tracker.start()
    began = time.monotonic()
    for step in range(100):
        tracker.log(step, {"loss": 1.0})
    assert time.monotonic() - began < 1.0
    tracker.close()
    tracker.log_figures([tmp_path / "figure.png"])
    printed = capsys.readouterr().err
    assert printed.count("warning: MLflow at") == 1
    assert tracker.run_id is None


def test_what_could_not_be_written_is_written_when_the_store_is_back(store, monkeypatch):
    root, _ = store
    tracker = Tracker(root / "back", key="back", name="back")
    tracker.start()
    tracker.flush()
    plain, failures = tracker._client.log_batch, [sqlite3.OperationalError("database is locked")]

    def failing(*arguments, **named):
        if failures:
            raise failures.pop()
        return plain(*arguments, **named)

    monkeypatch.setattr(tracker._client, "log_batch", failing)
    tracker.log(1, {"loss": 7.0})
    tracker.flush()
    tracker.log(2, {"loss": 6.0})
    tracker.close()
    assert history(root, tracker.run_id, "loss") == [(1, 7.0), (2, 6.0)]


def test_a_kill_while_the_store_is_made_leaves_none_behind(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def killed(*_):
        raise Killed

    tracker = Tracker(tmp_path / "run", key="k", name="n")
    with monkeypatch.context() as patch:
        patch.setattr("os.link", killed)
        with pytest.raises(Killed):
            tracker._open()
    assert not (tmp_path / "mlflow.db").exists()
    (left,) = tmp_path.glob(".mlflow.db.*.partial")
    left.rename(left.with_name(".mlflow.db.999999999-0.partial"))
    tracker.start()
    tracker.log(1, {"loss": 2.0})
    tracker.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mlflow.db"]
    assert history(tmp_path, tracker.run_id, "loss") == [(1, 2.0)]


def test_the_ui_command_names_the_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (
        Tracker(tmp_path / "runs" / "quickstart", key="", name="")
        .ui_command()
        .endswith("mlflow ui --backend-store-uri sqlite:///runs/mlflow.db")
    )
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert default_tracking_uri(tmp_path) == "http://127.0.0.1:5000"


def test_flatten_names_nested_values():
    assert flatten({"a": {"b": [1, {"c": 2}]}, "d": None}) == {"a.b.0": 1, "a.b.1.c": 2, "d": None}
