"""The one door to MLflow: buffered, in a thread of its own, never in the way.

Promise 9. Training hands over numbers and goes on; a thread opens the store (several seconds), writes in
batches (a synchronous metric costs about 10 ms), and when the store fails keeps what it has and tries
again; the end waits only a few seconds for a server that was found dead. A training run is one MLflow run
across resumes: it is found by a tag that ``run.json`` holds from the start, so a kill between creating the
run and noting its id makes no second one. Import of mlflow is left to the thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

SQLITE = "sqlite:///"
TAG = "xlm.training_run"
EXPERIMENT = "xlm"
FLUSH_INTERVAL_S = 15.0
# MLflow's limit for one log_batch call is 1,000 metrics and 100 parameters.
METRICS_A_CALL = 1000
PARAMETERS_A_CALL = 100
PARAMETER_CHARACTERS = 6000
KEPT_METRICS = 200_000
CLOSE_TIMEOUT_S = 60.0
# How long the end of a run waits for a server whose last call failed.
FAILING_CLOSE_TIMEOUT_S = 5.0
# MLflow's own defaults keep trying one call for minutes, in which nobody hears that the server is dead; here the
# buffer is what tries again. A value that the user set stays.
HTTP_DEFAULTS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "5"}

_Metric = tuple[str, float, int, int]  # name, value, time in ms, step


def default_tracking_uri(run_root: Path) -> str:
    """Return $MLFLOW_TRACKING_URI, else a sqlite store beside the run folders (``runs/mlflow.db``)."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{run_root.resolve().parent / 'mlflow.db'}"


class Tracker:
    """One MLflow run, named by ``key`` (kept in ``run.json``) and shown as ``name``."""

    def __init__(self, run_root: Path, *, key: str, name: str, parameters: Mapping[str, Any] | None = None) -> None:
        self.uri = default_tracking_uri(run_root)
        self._run_root = run_root
        self._key, self._name = key, name
        self._parameters = dict(parameters or {})
        self._run_id: str | None = None
        self._client: Any = None
        self._warned = False
        self._failing = False  # the last call failed
        self._status = "FINISHED"
        self._logged_step = -1
        self._buffer: list[_Metric] = []
        self._queue: queue.SimpleQueue[list[_Metric] | threading.Event | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def run_id(self) -> str | None:
        """The id of the MLflow run, None until the store has answered."""
        return self._run_id

    def start(self) -> None:
        """Open the run in the background."""
        self._thread = threading.Thread(target=self._work, name="tracker", daemon=True)
        self._thread.start()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Hand over the metrics of a step; returns at once."""
        now_ms = int(time.time() * 1000)
        self._queue.put([(name, float(value), now_ms, step) for name, value in {**metrics, "step": step}.items()])

    def flush(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Ask for everything handed over so far to be written, and wait for it at most ``timeout_s``."""
        if self._thread is not None:
            done = threading.Event()
            self._queue.put(done)
            self._wait(done.is_set, done.wait, timeout_s)

    def close(self, status: str = "FINISHED") -> None:
        """Write what is left and end the run as FINISHED, FAILED or KILLED; waits at most a minute, for a dead server seconds."""
        if self._thread is None:
            return
        self._status = status
        self._queue.put(None)
        thread, self._thread = self._thread, None
        if not self._wait(lambda: not thread.is_alive(), thread.join, CLOSE_TIMEOUT_S):
            self._warn("no answer in time")

    def log_figures(self, paths: Iterable[Path]) -> None:
        """Attach files to the run under ``figures/``; opens the run when it is not open."""
        if self._thread is not None and self._server_is_dead():
            return  # the thread has said so, and is the one that keeps trying
        with self._never_in_the_way():
            self._open()
            for path in paths:
                self._client.log_artifact(self._run_id, str(path), "figures")

    def ui_command(self) -> str:
        """Return the command that opens the MLflow UI on this store; a server has its UI at its own address."""
        if self.uri.startswith(("http://", "https://")):
            return self.uri.replace(_credentials(self.uri), "", 1)
        program = Path(sys.executable).with_name("mlflow")
        shown = str(program) if program.exists() else "mlflow"
        store = self.uri
        with contextlib.suppress(ValueError):
            shown = str(Path(shown).relative_to(Path.cwd()))
        with contextlib.suppress(ValueError):
            store = SQLITE + str(Path(self.uri.removeprefix(SQLITE)).relative_to(Path.cwd()))
        return f"{shown} ui --backend-store-uri {store}"

    def _server_is_dead(self) -> bool:
        # A file never is: a locked database comes back, and waiting for it is what keeps its last numbers.
        return self._failing and not self.uri.startswith(SQLITE)

    def _wait(self, is_done: Callable[[], bool], wait: Callable[[float], object], timeout_s: float) -> bool:
        """Wait at most ``timeout_s``, or less as long as the server is dead, and return whether it was done."""
        began = time.monotonic()
        while not is_done():
            limit_s = min(timeout_s, FAILING_CLOSE_TIMEOUT_S) if self._server_is_dead() else timeout_s
            left_s = began + limit_s - time.monotonic()
            if left_s <= 0:
                return False
            wait(min(left_s, 0.2))  # short, because the server may be found dead, or alive again, meanwhile
        return True

    def _work(self) -> None:
        self._write([])
        flushed = time.monotonic()
        while True:
            try:
                item = self._queue.get(timeout=FLUSH_INTERVAL_S)
            except queue.Empty:
                item = []
            if isinstance(item, list):
                self._buffer.extend(item)
            if not isinstance(item, list) or time.monotonic() - flushed >= FLUSH_INTERVAL_S:
                self._buffer = self._write(self._buffer)
                flushed = time.monotonic()
            if isinstance(item, threading.Event):
                item.set()
            if item is None:
                if self._client is not None:
                    with self._never_in_the_way():
                        self._client.set_terminated(self._run_id, self._status)
                return

    def _write(self, metrics: list[_Metric]) -> list[_Metric]:
        """Write metrics and return what could not be written."""
        with self._never_in_the_way():
            self._open()
            from mlflow.entities import Metric

            # A resumed run goes through some steps again; the store has them already.
            metrics = [metric for metric in metrics if metric[3] > self._logged_step]
            while metrics:
                call = metrics[:METRICS_A_CALL]
                self._client.log_batch(self._run_id, metrics=[Metric(*metric) for metric in call])
                self._failing = False
                metrics = metrics[METRICS_A_CALL:]
        return metrics[-KEPT_METRICS:]

    def _open(self) -> None:
        if self._client is not None:
            return
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
        for name, value in HTTP_DEFAULTS.items():
            os.environ.setdefault(name, value)
        from mlflow.tracking import MlflowClient

        logging.getLogger("alembic").setLevel(logging.WARNING)
        _make_sqlite_store(self.uri)
        client = MlflowClient(tracking_uri=self.uri)
        experiment = client.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            artifacts = (self._run_root.resolve().parent / "mlartifacts").as_uri() if self.uri.startswith(SQLITE) else None
            experiment_id = client.create_experiment(EXPERIMENT, artifact_location=artifacts)
        else:
            experiment_id = experiment.experiment_id
        runs = client.search_runs([experiment_id], filter_string=f"tags.`{TAG}` = '{self._key}'", max_results=1)
        if runs:
            self._run_id = runs[0].info.run_id
            self._logged_step = int(runs[0].data.metrics.get("step", -1))
            has_parameters = bool(runs[0].data.params)
            client.update_run(self._run_id, status="RUNNING")
        else:
            has_parameters = False
            self._run_id = client.create_run(experiment_id, run_name=self._name, tags={TAG: self._key}).info.run_id
        if not has_parameters:
            self._log_parameters(client)
        self._client = client
        self._failing = False

    def _log_parameters(self, client: Any) -> None:  # noqa: ANN401 (mlflow has no types)
        from mlflow.entities import Param

        flat = [Param(name, str(value)[:PARAMETER_CHARACTERS]) for name, value in flatten(self._parameters).items()]
        for start in range(0, len(flat), PARAMETERS_A_CALL):
            client.log_batch(self._run_id, params=flat[start : start + PARAMETERS_A_CALL])

    @contextlib.contextmanager
    def _never_in_the_way(self) -> Any:  # noqa: ANN401
        try:
            yield
        except Exception as error:  # noqa: BLE001 (promise 9: no failure of the store stops training)
            self._failing = True
            self._warn(_reason(error))

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            line = f"warning: MLflow at {self.uri} does not answer ({reason}); training goes on, metrics.jsonl has every number."
            print(line.replace(_credentials(self.uri), ""), file=sys.stderr)


def _reason(error: BaseException) -> str:
    """Say what went wrong, in one line: the system's own words where a chain of libraries wraps them."""
    innermost = error
    for _ in range(20):  # a chain of causes may be a circle
        innermost = innermost.__cause__ or innermost.__context__ or innermost
    if isinstance(innermost, OSError):
        error = innermost
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _credentials(uri: str) -> str:
    """Return the ``user:password@`` of an address, which is never printed, or an empty string."""
    with contextlib.suppress(ValueError):  # no address at all; MLflow says so
        user, at, _ = urlsplit(uri).netloc.rpartition("@")
        return user + at
    return ""


def _make_sqlite_store(uri: str) -> None:
    """Make a sqlite store that appears whole: MLflow's migrations, killed halfway, leave one that never opens again."""
    path = Path(uri.removeprefix(SQLITE))
    if not uri.startswith(SQLITE) or path.exists():
        return
    from mlflow.tracking import MlflowClient

    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{path.name}.*.partial"):
        if not psutil.pid_exists(int(left.name.split(".")[-2].partition("-")[0])):
            left.unlink()
    # A name of its own at each attempt: MLflow keeps the stores it opened, by name.
    partial = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex}.partial")
    MlflowClient(tracking_uri=f"{SQLITE}{partial}")
    with contextlib.suppress(FileExistsError):  # another run was faster
        os.link(partial, path)
    partial.unlink()


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn nested mappings and lists into dotted names, ``{"a": {"b": [1]}}`` into ``{"a.b.0": 1}``."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, Mapping):
            flat.update(flatten(value, dotted + "."))
        elif isinstance(value, list | tuple):
            flat.update(flatten({str(index): item for index, item in enumerate(value)}, dotted + "."))
        else:
            flat[dotted] = value
    return flat
