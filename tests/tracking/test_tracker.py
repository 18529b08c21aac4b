import http.server
import json
import os
import socket
import sqlite3
import threading
import time

import pytest

from xlm.tracking.json_lines import JsonLines
from xlm.tracking.run_card import RunCard
from xlm.tracking.store import HTTP_DEFAULTS, default_tracking_uri
from xlm.tracking.tracker import Tracker


@pytest.fixture(autouse=True)
def _no_server(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr("xlm.tracking.tracker.FAILING_CLOSE_TIMEOUT_S", 1.0)
    for name in HTTP_DEFAULTS:
        monkeypatch.setenv(name, "")  # so that what the tracker sets is taken back
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A folder of runs with a fresh store, whose making takes seconds."""
    root = tmp_path_factory.mktemp("runs")
    tracker = Tracker(root / "first", key="first", name="first", parameters={"model": {"width": 8, "betas": [0.9, 0.98]}})
    tracker.start()
    tracker.log(1, {"loss": 2.5})
    tracker.log(2, {"loss": 2.25, "loss/mlm/zh-Hans": 3.0})
    tracker.flush(300)  # a busy machine takes its time to make a store
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


def test_a_resumed_run_is_the_same_run_and_gets_what_it_lacks(store):
    """A kill left gaps on the server, a step beyond the checkpoint, and lines that were never sent."""
    root, run_id = store
    lines = JsonLines(root / "metrics.jsonl")
    for step in (1, 2, 3, 4):
        lines.append({"step": step, "phase": "p", "time": 1000.0 + step, "again": step / 2, "none": None, "loss": 2.75 - step / 4})
    tracker = Tracker(root / "first", key="first", name="first", parameters={"model": {"width": 9, "new": 1}}, lines=lines)
    tracker.start()
    tracker.resume()
    again = {"step": 5, "time": 2000.0, "again": 2.5, "loss": 1.5}
    lines.append(again)
    tracker.log_line(again)
    tracker.close()
    assert tracker.run_id == run_id
    assert tracker.is_complete
    assert history(root, run_id, "loss") == [(1, 2.5), (2, 2.25), (3, 2.0), (4, 1.75), (5, 1.5)]
    # Steps 1 and 2 are there already, so nothing of these lines is sent again.
    assert history(root, run_id, "again") == [(3, 1.5), (4, 2.0), (5, 2.5)]
    assert client(root).get_run(run_id).info.status == "FINISHED"
    parameters = client(root).get_run(run_id).data.params
    assert (parameters["model.width"], parameters["model.new"]) == ("8", "1")


def test_a_card_is_attached_once(store):
    root, run_id = store
    cards = []

    def card():
        cards.append(RunCard({"recipe.yaml": "seed: 1\n", "stages/corpus/stage.json": "{}"}, {"git.dirty": "false"}))
        return cards[-1]

    for _ in range(2):
        tracker = Tracker(root / "first", key="first", name="first", card=card)
        tracker.start()
        tracker.close()
    assert len(cards) == 1
    assert {artifact.path for artifact in client(root).list_artifacts(run_id)} >= {"recipe.yaml", "stages"}
    assert client(root).get_run(run_id).data.tags["git.dirty"] == "false"


def test_a_store_that_takes_numbers_and_no_files_is_asked_three_times_and_the_run_ends(store, monkeypatch, capsys):
    root, _ = store
    asked = []

    def refuses(run, card):
        asked.append(card)
        raise OSError(30, "Read-only file system", "artifacts")

    monkeypatch.setattr("xlm.tracking.mlflow_run.MlflowRun.log_card", refuses)
    tracker = Tracker(root / "no files", key="no files", name="no files", card=RunCard)
    tracker.start()
    for step in range(1, 5):
        tracker.log(step, {"loss": 1.0 / step})
        tracker.flush()
    tracker.close()
    assert len(asked) == 3
    assert tracker.is_complete
    assert client(root).get_run(tracker.run_id).info.status == "FINISHED"
    assert "takes no files of this run ([Errno 30] Read-only file system: 'artifacts'); its numbers arrive." in capsys.readouterr().err


def test_the_machine_is_watched_at_the_step_of_training(store, monkeypatch):
    root, _ = store
    monkeypatch.setattr("xlm.tracking.tracker.SYSTEM_INTERVAL_S", 0.1)
    tracker = Tracker(root / "watched", key="watched", name="watched", with_system_metrics=True)
    tracker.start()
    tracker.log(7, {"loss": 1.0})
    tracker.flush()
    time.sleep(0.5)
    tracker.close()
    memory = history(root, tracker.run_id, "system/system_memory_usage_percentage")
    assert memory
    assert all(0 < value < 100 for _, value in memory)
    assert memory[-1][0] == 7


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
    assert len(client(root).get_run(tracker.run_id).data.metrics) == 600


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


class Server(http.server.ThreadingHTTPServer):
    """As much of an MLflow server as a run needs."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answers)
        self.uri = f"http://127.0.0.1:{self.server_port}"
        self.calls = []
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def die(self):
        self.shutdown()
        self.server_close()


class Answers(http.server.BaseHTTPRequestHandler):
    def answer(self):
        length = int(self.headers.get("Content-Length") or 0)
        call = self.path.partition("?")[0].partition("/mlflow/")[2]
        self.server.calls.append((call, json.loads(self.rfile.read(length) or "{}")))
        run_info = {"run_id": "r1", "run_uuid": "r1", "experiment_id": "1", "status": "RUNNING", "lifecycle_stage": "active"}
        answers = {
            "experiments/get-by-name": {"experiment": {"experiment_id": "1", "name": "xlm", "lifecycle_stage": "active"}},
            "runs/search": {},
            "runs/create": {"run": {"info": run_info, "data": {}}},
            "runs/get": {"run": {"info": run_info, "data": {}}},
            "runs/update": {"run_info": run_info},
            "runs/log-batch": {},
        }
        body = json.dumps(answers.get(call, {"error_code": "ENDPOINT_NOT_FOUND"})).encode()
        self.send_response(200 if call in answers else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PATCH = answer  # noqa: N815 (the names http.server asks for)

    def log_message(self, *_):
        pass


def dead_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


def test_a_dead_server_is_one_early_warning_and_no_wait(tmp_path, monkeypatch, capfd):
    port = dead_port()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://someone:secret@127.0.0.1:{port}")
    tracker = Tracker(tmp_path / "run", key="k", name="n")
    tracker.start()
    tracker.log(1, {"loss": 1.0})
    wait_for(lambda: tracker._warned)  # long before the first flush of a run that goes on
    printed = capfd.readouterr().err
    assert printed.startswith(f"warning: MLflow at http://127.0.0.1:{port} does not answer (")
    assert "refused" in printed
    assert printed.endswith("training goes on, metrics.jsonl has every number.\n")
    began = time.monotonic()
    tracker.flush()
    tracker.log_figures([tmp_path / "figure.png"])
    tracker.close()
    assert time.monotonic() - began < 15.0
    assert capfd.readouterr().err == f"MLflow at http://127.0.0.1:{port} lacks 1 metrics; run the same command again when it answers.\n"


def test_a_server_that_takes_calls_and_never_answers_is_given_up(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        tracker = Tracker(tmp_path / "run", key="k", name="n")
        tracker.start()
        tracker.log(1, {"loss": 1.0})
        began = time.monotonic()
        tracker.close()
        assert time.monotonic() - began < 15.0
    assert capfd.readouterr().err.count("does not answer") == 1


def test_a_server_that_dies_midway_is_one_warning_and_no_wait(tmp_path, monkeypatch, capfd):
    server = Server()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    tracker = Tracker(tmp_path / "run", key="k", name="n")
    tracker.start()
    tracker.log(1, {"loss": 1.0})
    tracker.flush()
    assert tracker.run_id == "r1"
    assert [metric["key"] for call, sent in server.calls if call == "runs/log-batch" for metric in sent.get("metrics", [])] == ["loss"]
    assert capfd.readouterr().err == ""
    server.die()
    began = time.monotonic()
    for step in (2, 3):
        tracker.log(step, {"loss": 1.0})
        tracker.flush()
    tracker.log_figures([tmp_path / "figure.png"])
    tracker.close()
    assert time.monotonic() - began < 15.0
    printed = capfd.readouterr().err
    assert printed.startswith(f"warning: MLflow at {server.uri} does not answer (")
    assert printed.splitlines()[1:] == [f"MLflow at {server.uri} lacks 2 metrics; run the same command again when it answers."]


def test_the_end_does_not_wait_for_a_call_that_hangs_on_a_dead_server(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setattr("xlm.tracking.tracker.FAILING_CLOSE_TIMEOUT_S", 0.5)
    released, calls = threading.Event(), []

    def open_run():
        calls.append(1)
        if len(calls) > 1:
            released.wait(30)
        raise TimeoutError("timed out")

    tracker = Tracker(tmp_path / "run", key="k", name="n")
    tracker._open_run = open_run
    tracker.start()
    wait_for(lambda: tracker._failing)
    began = time.monotonic()
    tracker.close()
    assert time.monotonic() - began < 5.0
    released.set()
    assert capsys.readouterr().err.count("does not answer") == 1


def test_the_end_is_never_a_silent_wait(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("xlm.tracking.tracker.CLOSE_TIMEOUT_S", 0.3)
    released = threading.Event()
    tracker = Tracker(tmp_path / "run", key="k", name="n")
    tracker._open_run = lambda: released.wait(30)
    tracker.start()
    tracker.close()
    released.set()
    assert "does not answer (no answer in time)" in capsys.readouterr().err


@pytest.mark.parametrize("chosen", [None, "3"])
def test_calls_are_short_unless_the_user_chose(tmp_path, monkeypatch, chosen):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{dead_port()}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    if chosen is not None:
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", chosen)
    Tracker(tmp_path / "run", key="k", name="n").log_figures([])
    assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "0"
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == (chosen or "5")


def test_what_could_not_be_written_is_written_when_the_store_is_back(store, monkeypatch):
    root, _ = store
    tracker = Tracker(root / "back", key="back", name="back")
    tracker.start()
    tracker.flush()
    plain, failures = tracker._run.send, [sqlite3.OperationalError("database is locked")]

    def failing(*arguments, **named):
        if failures:
            raise failures.pop()
        return plain(*arguments, **named)

    monkeypatch.setattr(tracker._run, "send", failing)
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
            tracker._open_run()
    assert not (tmp_path / "mlflow.db").exists()
    (left,) = tmp_path.glob(".mlflow.db.*.partial")
    left.rename(left.with_name(".mlflow.db.999999999-0.partial"))
    tracker.start()
    tracker.log(1, {"loss": 2.0})
    tracker.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mlflow.db"]
    assert history(tmp_path, tracker.run_id, "loss") == [(1, 2.0)]
