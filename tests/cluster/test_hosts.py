"""The hosts themselves: apart from each other, and gone without a trace."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import hosts
import psutil
import pytest

HERE = Path(__file__).parent
KNOCK = "import socket, time; began = time.monotonic(); socket.create_connection(('birch', 22), 2).recv(4); print(time.monotonic() - began)"


def told(host, *command):
    return host.start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).communicate(timeout=180)[0].strip()


def test_hosts_have_names_and_addresses_and_reach_each_other(rack):
    assert [told(host, "hostname") for host in rack] == ["alder", "birch"]
    assert told(rack[0], "ssh", "birch", "hostname") == "birch"
    assert told(rack[1], "hostname", "-I") == rack[1].address
    assert "br0" not in subprocess.run(["ip", "link"], capture_output=True, text=True, check=True, env={"PATH": hosts.PATH}).stdout


def test_a_kill_stays_on_its_host(rack):
    both = [host.start(["sleep", "1000"]) for host in rack]
    deadline = time.monotonic() + 20
    while not all("sleep" in [process.name() for process in host.processes()] for host in rack) and time.monotonic() < deadline:
        time.sleep(0.05)
    rack[1].kill()
    assert both[1].wait(timeout=20) == -signal.SIGKILL
    assert both[0].poll() is None
    assert told(rack[0], "ssh", "birch", "hostname") == "birch"  # its sshd lives on


def test_a_cable_can_be_slow_and_pulled_out(rack):
    knock = [sys.executable, "-c", KNOCK]
    with rack[1].slow(200):
        assert float(told(rack[0], *knock)) > 0.7  # two ways there and back
    assert float(told(rack[0], *knock)) < 0.7
    rack[1].unplug()
    try:
        assert "Error" in told(rack[0], *knock)
    finally:
        rack[1].plug_in_again()
    deadline = time.monotonic() + 20
    while "Error" in (answer := told(rack[0], *knock)) and time.monotonic() < deadline:
        time.sleep(0.2)
    float(answer)


def test_nothing_is_left_when_the_harness_is_killed(tmp_path):
    if reason := hosts.missing():
        pytest.skip(reason)
    script = "import sys, time; from hosts import Rack\nwith Rack(sys.argv[1]): print('up', flush=True); time.sleep(600)"
    command = [sys.executable, "-c", script, str(tmp_path / "rack")]
    harness = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(HERE)})
    assert harness.stdout.readline() == "up\n"
    left = psutil.Process(harness.pid).children(recursive=True)
    assert any(process.name() == "sshd" for process in left)
    harness.kill()
    harness.wait()
    assert psutil.wait_procs(left, timeout=20)[1] == []


def test_without_root_it_says_what_is_needed(monkeypatch):
    monkeypatch.setattr(hosts.os, "geteuid", lambda: 1000)
    assert hosts.missing().startswith("hosts on one machine need root")
