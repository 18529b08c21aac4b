import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from xlm.training.stopping import EXIT_CODES, StopRequests

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _as_before():
    before = {number: signal.getsignal(number) for number in EXIT_CODES}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_asks_and_a_second_one_changes_nothing(number):
    with StopRequests() as requests:
        assert requests.asked() == 0
        for _ in range(2):
            os.kill(os.getpid(), number)
            assert requests.asked() == number
    # On the way out: the test would end here.
    os.kill(os.getpid(), number)


def test_ctrl_c_asks_and_a_second_one_means_now():
    with StopRequests() as requests:
        os.kill(os.getpid(), signal.SIGINT)
        assert requests.asked() == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_of_two_signals_the_one_that_ends_processes_is_answered():
    with StopRequests() as requests:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert requests.asked() == signal.SIGTERM


def test_signals_are_given_back_where_none_came():
    mine = signal.signal(signal.SIGUSR1, lambda *_: None)
    handler = signal.getsignal(signal.SIGUSR1)
    with StopRequests():
        assert signal.getsignal(signal.SIGUSR1) != handler
    assert signal.getsignal(signal.SIGUSR1) == handler
    signal.signal(signal.SIGUSR1, mine)


def test_codes_are_those_of_a_terminated_process_and_of_a_failure_for_now():
    assert EXIT_CODES == {signal.SIGTERM: 143, signal.SIGUSR1: os.EX_TEMPFAIL, signal.SIGINT: 130}


RANK = """
import time
from xlm.training.stopping import StopRequests
with StopRequests() as requests:
    print("watching", flush=True)
    for _ in range(600):
        if requests.asked():
            print("asked", requests.asked(), flush=True)
            break
        time.sleep(0.05)
"""
LAUNCH = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


@pytest.mark.parametrize("killed", [signal.SIGKILL, signal.SIGTERM])
def test_a_launcher_that_is_gone_asks_to_stop(tmp_path, killed):
    program = tmp_path / "deepspeed"
    program.write_text(LAUNCH, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "-u", str(program), RANK],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as launcher:
        assert launcher.stdout.readline() == "watching\n"
        launcher.send_signal(killed)
        assert launcher.stdout.readline() == f"asked {int(signal.SIGTERM)}\n"


def test_another_parent_may_go():
    # A shell in the background, a terminal that was closed after `nohup`.
    script = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {RANK.replace('range(600)', 'range(4)')!r}])"
    done = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.stdout == "watching\n"
