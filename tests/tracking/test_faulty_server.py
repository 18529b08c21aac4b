"""Promise 9 with a real server behind a proxy that drops, delays, answers 500 and cuts answers, in turns."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from faulty_proxy import MODES, FaultyProxy
from logging_loop import metrics_at
from mlflow_server import mlflow_server

from xlm.tracking.mlflow_run import TAG

HERE = Path(__file__).parent
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
STEP_S = 0.05


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with mlflow_server(tmp_path_factory.mktemp("server")) as port:
        yield port


@pytest.fixture
def proxy(server):
    proxy = FaultyProxy(server)
    yield proxy
    proxy.stopped.set()
    proxy.shutdown()
    proxy.server_close()


def start_loop(root, uri, first, last, every, **variables):
    root.mkdir(exist_ok=True)
    environment = {**os.environ, "MLFLOW_TRACKING_URI": uri, "PYTHONPATH": str(HERE.parents[1]), "FLUSH_INTERVAL_S": "0.5", **variables}
    command = [sys.executable, str(HERE / "logging_loop.py"), str(root), str(first), str(last), str(STEP_S), str(every)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result_of(process):
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1]), err


def on_server(port, key):
    """Return the histories of the one run with this key, by name, as the server tells them."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"http://127.0.0.1:{port}")
    (run,) = client.search_runs(["0", "1", "2"], filter_string=f"tags.`{TAG}` = '{key}'")
    assert run.info.status == "FINISHED"
    found = {}
    for name in run.data.metrics:
        found[name] = sorted((metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name))
    return found


def expected(steps):
    found = {}
    for step in steps:
        for name, value in metrics_at(step).items():
            found.setdefault(name, []).append((step, value))
    return found


def without_the_machine(found):
    return {name: curve for name, curve in found.items() if not name.startswith("system/")}


def test_every_metric_arrives_exactly_once_and_training_does_not_wait(tmp_path, server, proxy):
    # Side by side, so that a busy machine slows both.
    without = start_loop(tmp_path / "without", proxy.uri, 1, 800, every=0, START_WITH=str(tmp_path / "with" / "at"))
    turning = proxy.take_turns([("pass", 1.5), ("drop", 2), ("error", 2), ("error after", 2), ("cut", 2), ("delay", 11)])
    process = start_loop(tmp_path / "with", proxy.uri, 1, 800, every=4)
    while process.poll() is None and (not (tmp_path / "with" / "at").exists() or int((tmp_path / "with" / "at").read_text() or 0) < 799):
        time.sleep(0.1)
    proxy.stopped.set()
    turning.join()
    result, err = result_of(process)
    without, _ = result_of(without)
    print(f"{without}, {result}, {dict(proxy.seen)}")
    assert set(proxy.seen) == set(MODES)
    assert result["complete"]
    assert without_the_machine(on_server(server, "with")) == expected(range(4, 801, 4))
    assert result["wall_s"] < 1.10 * without["wall_s"]  # within 1 % where nothing else runs
    assert result["in_log_s"] + result["tracker_cpu_s"] < 0.02 * result["wall_s"]  # 33 metrics every fourth step, written twice a second
    assert err.count("does not answer") == 1


def test_what_a_killed_training_had_not_sent_is_sent_at_the_next_start(tmp_path, server, proxy):
    root = tmp_path / "killed"
    process = start_loop(root, proxy.uri, 1, 100000, every=1)
    at = root / "at"
    for reached, mode in ((60, "drop"), (110, "pass"), (170, "drop"), (200, None)):
        while not at.exists() or int(at.read_text() or 0) < reached:
            assert process.poll() is None
            time.sleep(0.02)
        proxy.mode = mode or proxy.mode
    process.kill()
    process.communicate()
    proxy.mode = "pass"
    result, _ = result_of(start_loop(root, proxy.uri, 151, 300, every=1))
    assert result["complete"]
    assert without_the_machine(on_server(server, "killed")) == expected(range(1, 301))


def test_the_trackers_share_of_a_step(tmp_path, server):
    """As a run logs by default: every tenth step of 50 ms, written every 15 s."""
    result, err = result_of(start_loop(tmp_path / "share", f"http://127.0.0.1:{server}", 1, 800, every=10, FLUSH_INTERVAL_S="15"))
    print(result)
    assert err == ""
    assert (result["in_log_s"] + result["tracker_cpu_s"]) < 0.01 * 800 * STEP_S
    assert without_the_machine(on_server(server, "share")) == expected(range(10, 801, 10))
