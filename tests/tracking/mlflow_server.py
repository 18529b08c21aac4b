"""A real ``mlflow server`` on a free port."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def mlflow_server(root, store=None, timeout_s=240, *, command="server"):
    """Yield the port of ``mlflow server``, or ``ui``, whose store lies in a folder; ended with all its workers."""
    port = free_port()
    store = store or f"sqlite:///{root / 'server.db'}"
    program = str(Path(sys.executable).with_name("mlflow"))
    command = [program, command, "--backend-store-uri", store, "--artifacts-destination", str(root / "artifacts")]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (root / "server.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=root, start_new_session=True)
    try:
        wait_until_healthy(server, port, timeout_s)
        yield port
    finally:
        stop(server)


def wait_until_healthy(server, port, timeout_s):
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("no mlflow server came up")


def stop(server):
    """End the server's session: its workers, which outlive a plain kill, are in it."""
    import signal

    import psutil

    members = [process for process in psutil.process_iter() if _session(process) == server.pid]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for member in members:
            try:
                member.send_signal(number)
            except psutil.NoSuchProcess:
                continue
        _, members = psutil.wait_procs(members, timeout=5)
    server.wait()


def _session(process):
    try:
        return os.getsid(process.pid)
    except OSError:
        return None
