"""Where MLflow keeps its runs: which store, how it is shown, and how a sqlite one comes to be."""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import psutil

SQLITE = "sqlite:///"
# MLflow's own defaults keep trying one call for minutes, in which nobody hears that the server is dead; here the
# buffer is what tries again. A value that the user set stays.
TIMEOUT_VARIABLE = "MLFLOW_HTTP_REQUEST_TIMEOUT"
HTTP_DEFAULTS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", TIMEOUT_VARIABLE: "5"}
LONGEST_TIMEOUT_S = 60


def default_tracking_uri(run_root: Path) -> str:
    """Return $MLFLOW_TRACKING_URI, else a sqlite store beside the run folders (``runs/mlflow.db``)."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{run_root.resolve().parent / 'mlflow.db'}"


def artifacts_of(uri: str) -> str | None:
    """Return where artifacts of a sqlite store go, beside it; a server says so itself."""
    return (Path(uri.removeprefix(SQLITE)).resolve().parent / "mlartifacts").as_uri() if uri.startswith(SQLITE) else None


def ui_command(uri: str) -> str:
    """Return the command that opens the MLflow UI on a store; a server has its UI at its own address."""
    if uri.startswith(("http://", "https://")):
        return without_credentials(uri, uri)
    program = Path(sys.executable).with_name("mlflow")
    shown = str(program) if program.exists() else "mlflow"
    store = uri
    with contextlib.suppress(ValueError):
        shown = str(Path(shown).relative_to(Path.cwd()))
    with contextlib.suppress(ValueError):
        store = SQLITE + str(Path(uri.removeprefix(SQLITE)).relative_to(Path.cwd()))
    return f"{shown} ui --backend-store-uri {store}"


def without_credentials(text: str, uri: str) -> str:
    """Return a text in which the ``user:password@`` of an address, which is never printed, is left out."""
    with contextlib.suppress(ValueError):  # no address at all; MLflow says so
        user, at, _ = urlsplit(uri).netloc.rpartition("@")
        return text.replace(user + at, "") if at else text
    return text


def set_http_defaults() -> None:
    """Have calls end early, unless the user chose otherwise, and MLflow keep to itself what is no news."""
    for name, value in {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_LOGGING_LEVEL": "WARNING", **HTTP_DEFAULTS}.items():
        os.environ.setdefault(name, value)


def make_sqlite_store(uri: str) -> None:
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
