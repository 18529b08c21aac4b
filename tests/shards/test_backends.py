"""Backends: every task once, mistakes and deaths as one sentence, and nobody left behind."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from xlm.errors import UserError
from xlm.shards import backends
from xlm.shards.backends import LocalBackend, RayBackend, default_workers


class Doubles:
    """Work that may go wrong at one task."""

    def __init__(self, fails_at=None, dies_at=None):
        self.fails_at, self.dies_at = fails_at, dies_at

    def __call__(self, task):
        if task == self.fails_at:
            raise UserError(f"task {task} is not a number.")
        if task == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return 2 * task, os.getpid()


@pytest.mark.parametrize("workers", [1, 3])
def test_every_task_is_done_once(workers):
    results = dict(LocalBackend(workers).map(Doubles, range(20)))
    assert {number: value for number, (value, _) in results.items()} == {number: 2 * number for number in range(20)}
    processes = {process for _, process in results.values()}
    assert (processes == {os.getpid()}) if workers == 1 else (os.getpid() not in processes)


def test_no_tasks_are_no_work():
    assert list(LocalBackend(4).map(Doubles, [])) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_a_users_mistake_in_a_task_is_its_sentence(workers):
    with pytest.raises(UserError, match=r"^task 5 is not a number\.$"):
        list(LocalBackend(workers).map(partial(Doubles, fails_at=5), range(20)))


def makes_nothing():
    raise UserError("there is nothing to work with.")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_users_mistake_in_the_maker_is_its_sentence(workers):
    with pytest.raises(UserError, match=r"^there is nothing to work with\.$"):
        list(LocalBackend(workers).map(makes_nothing, range(3)))


def test_a_killed_worker_is_one_sentence():
    with pytest.raises(UserError, match="a worker died before its shard was written"):
        list(LocalBackend(2).map(partial(Doubles, dies_at=5), range(20)))


def test_workers_end_with_their_parent(tmp_path):
    script = (
        "import os, sys, time\n"
        "from functools import partial\n"
        "from xlm.shards.backends import LocalBackend\n"
        "if __name__ == '__main__':\n"
        "    for _ in LocalBackend(2).map(partial(partial, time.sleep), [0, 0, 600, 600]):\n"
        "        print('started', flush=True)\n"
    )
    path = tmp_path / "parent.py"
    path.write_text(script)
    with subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True, cwd=Path(backends.__file__).parents[2]) as parent:
        assert parent.stdout.readline() == "started\n"
        workers = psutil.Process(parent.pid).children(recursive=True)
        assert len(workers) >= 2
        parent.kill()
    deadline = time.monotonic() + 20
    while any(worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [worker for worker in workers if worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE] == []


def test_running_tasks_are_given_up_where_nobody_wants_their_results():
    results = LocalBackend(2).map(partial(partial, time.sleep), [0, 600, 600])
    next(results)
    started = time.monotonic()
    results.close()
    assert time.monotonic() - started < 20


def test_a_missing_ray_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'xlm\[ray\]'"):
        list(RayBackend(2).map(Doubles, [1]))


@pytest.fixture
def ray_here():
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'xlm[ray]'")
    yield
    ray.shutdown()


@pytest.mark.usefixtures("ray_here")
def test_ray_does_every_task_once_and_passes_on_what_goes_wrong():
    results = dict(RayBackend(2).map(Doubles, range(20)))
    assert {number: value for number, (value, _) in results.items()} == {number: 2 * number for number in range(20)}
    with pytest.raises(UserError, match=r"^task 5 is not a number\.$"):
        list(RayBackend(2).map(partial(Doubles, fails_at=5), range(20)))
    with pytest.raises(UserError, match="4 workers of Ray died at the same shard"):
        list(RayBackend(2).map(partial(Doubles, dies_at=5), range(20)))


def test_workers_fit_the_machine(monkeypatch):
    assert 1 <= default_workers() <= 8
    monkeypatch.setattr(backends, "WORKER_BYTES", 1 << 60)
    assert default_workers() == 1
