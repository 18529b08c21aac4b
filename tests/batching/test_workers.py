"""Workers in earnest: real processes, killed, interrupted and left alone."""

import os
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from made_up_batches import MadeUpBuilder, made_up_batch, same_batches

from xlm.batching.workers import built_by_workers
from xlm.errors import UserError

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def built(builder, steps, **changes):
    return built_by_workers(builder, steps, **{"workers": 2, "ahead": 2, **changes})


def worker_ids(of=None):
    """Processes of loader workers below a process, by default this one."""
    found = []
    for child in psutil.Process(of).children(recursive=True):
        try:
            if "xlm.batching.worker_process" in child.cmdline():
                found.append(child.pid)
        except psutil.NoSuchProcess:
            continue
    return found


def wait_until(condition, timeout_s=20):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(("workers", "ahead"), [(1, 1), (3, 2), pytest.param(8, 300, marks=pytest.mark.slow)])
def test_steps_come_in_order_whole_and_once(workers, ahead):
    found = list(built(MadeUpBuilder(), range(5, 12), workers=workers, ahead=ahead))
    assert [step for step, _ in found] == list(range(5, 12))
    assert all(same_batches(batches, [made_up_batch(step), made_up_batch(step + 1, tokens=0)]) for step, batches in found)
    assert not worker_ids()


def test_a_thousand_steps_ahead_do_not_jam():
    # More results than a socket or the system's count of descriptors under way would hold.
    stream = built(MadeUpBuilder(), range(2000), workers=1, ahead=1000)
    next(stream)
    time.sleep(1.0)
    assert [step for step, _ in stream] == list(range(1, 2000))


def test_steps_are_dealt_in_turn_and_few_lie_ahead(tmp_path):
    stream = built(MadeUpBuilder(notes=str(tmp_path)), range(100), workers=2, ahead=3)
    assert next(stream)[0] == 0

    def notes():
        return sorted((int(note.name.split("-")[0]), note.name.split("-")[1]) for note in tmp_path.iterdir())

    wait_until(lambda: len(notes()) >= 6)
    time.sleep(0.3)
    assert [step for step, _ in notes()] == list(range(6))
    assert next(stream)[0] == 1
    wait_until(lambda: len(notes()) == 7)
    of_steps = [process for _, process in notes()]
    assert all(one != other for one, other in pairwise(of_steps[:6]))
    stream.close()
    assert not worker_ids()


def test_a_killed_worker_is_a_sentence_at_once():
    stream = built(MadeUpBuilder(at={3: "hang"}), range(10))
    assert [next(stream)[0] for _ in range(3)] == [0, 1, 2]
    first = min(worker_ids())
    # While the rank waits for step 3, the worker of the other steps is killed.
    threading.Timer(0.3, os.kill, (first, signal.SIGKILL)).start()
    began = time.monotonic()
    with pytest.raises(UserError, match=r"loader worker \d was ended by SIGKILL before it gave step 3; if the machine ran out"):
        next(stream)
    assert time.monotonic() - began < 5  # a tenth of a second where there are processors to spare
    assert not worker_ids()


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("kill", "loader worker 1 was ended by SIGKILL before it gave step 3"),
        ("exit", "ended with exit code 3 before it gave step 3"),
    ],
)
def test_a_worker_that_dies_building_a_step_is_named_with_it(what, sentence):
    stream = built(MadeUpBuilder(at={3: what}), range(10), ahead=1)
    assert [next(stream)[0] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(UserError, match=sentence):
        list(stream)
    assert not worker_ids()


def test_what_goes_wrong_in_a_step_is_said_at_that_step():
    stream = built(MadeUpBuilder(at={3: "user error"}), range(10), ahead=4)
    assert [next(stream)[0] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(UserError, match=r"^shards/de.arrow: the shard is gone; build it again.$"):
        next(stream)
    stream = built(MadeUpBuilder(at={1: "bug"}), range(10), ahead=4)
    assert next(stream)[0] == 0
    with pytest.raises(RuntimeError, match=r"(?s)loader worker 1 failed at step 1:.*ZeroDivisionError: a bug"):
        next(stream)
    assert not worker_ids()


def test_workers_leave_ctrl_c_and_sigterm_to_their_rank():
    found = [step for step, _ in built(MadeUpBuilder(at={1: "term", 2: "int"}), range(6))]
    assert found == list(range(6))


RANK = """
import sys, time
from made_up_batches import MadeUpBuilder
from xlm.batching.workers import built_by_workers
stream = built_by_workers(MadeUpBuilder(at={4: "hang"}), range(100), workers=2, ahead=2)
print([next(stream)[0] for _ in range(4)], flush=True)
try:
    next(stream)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    stream.close()
    raise
"""


@pytest.fixture
def waiting_rank():
    """A process whose next step never comes, with two workers."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}", "OMP_NUM_THREADS": "1"}
    rank = subprocess.Popen([sys.executable, "-c", RANK], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert rank.stdout.readline().strip() == "[0, 1, 2, 3]"
        workers = worker_ids(rank.pid)
        assert len(workers) == 2
        yield rank, workers
    finally:
        rank.kill()
        rank.wait()


def test_no_worker_outlives_a_killed_rank(waiting_rank):
    rank, workers = waiting_rank
    rank.kill()
    rank.wait()
    wait_until(lambda: not any(psutil.pid_exists(worker) for worker in workers), timeout_s=10)


def test_ctrl_c_ends_a_waiting_rank_and_its_workers(waiting_rank):
    rank, workers = waiting_rank
    rank.send_signal(signal.SIGINT)
    assert "interrupted" in rank.communicate(timeout=10)[0]
    assert not any(psutil.pid_exists(worker) for worker in workers)
