"""Pretraining started on hosts of a `Rack`, in the ways that users start it."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PORT = 29500
NOT_OF_THE_CURVE = {"time", "tokens_per_second", "wall_s", "peak_memory_bytes", "mfu", "time_left_s"}
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": str(ROOT)}
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath), "/usr/sbin"])


class Started:
    """A running command whose output is kept as it comes."""

    def __init__(self, process):
        self.process, self.printed, self.began = process, "", time.monotonic()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.printed += line

    def wait(self, timeout_s=900):
        """Return the exit code; `printed` and `wall_s` are then complete."""
        code = self.process.wait(timeout=timeout_s)
        self.wall_s = time.monotonic() - self.began
        self._reader.join(timeout=10)
        return code

    def wait_for(self, condition, timeout_s=600):
        until = time.monotonic() + timeout_s
        while not condition():
            assert self.process.poll() is None, f"ended with {self.process.returncode} too early:\n{self.printed}"
            assert time.monotonic() < until, f"nothing after {timeout_s} s:\n{self.printed}"
            time.sleep(0.05)


def script(recipe, run, *options, stage=2):
    """Return what follows the launcher's options."""
    config = ROOT / "deepspeed_configs" / f"zero{stage}.json"
    command = [ROOT / "pipelines" / "pretrain.py", "--recipe", recipe, "--run-dir", run, "--deepspeed_config", config]
    return [*map(str, command), *options]


def start(host, command, cwd, environment=None):
    variables = {**ENVIRONMENT, "PATH": PATH, **(environment or {})}
    return Started(
        host.start(command, cwd=cwd, environment=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    )


def hostfile(rack, folder, slots=1):
    path = Path(folder) / "hostfile"
    path.write_text("".join(f"{host.name} slots={slots}\n" for host in rack), encoding="utf-8")
    return path


def deepspeed():
    return [sys.executable, str(Path(sys.executable).with_name("deepspeed"))]


def by_pdsh(rack, recipe, run, *options, slots=1):
    """Start on the first host, whose launcher logs in to all of them."""
    folder = run.parent
    # pdsh carries few variables over; the launcher takes the others from here.
    (folder / ".deepspeed_env").write_text("".join(f"{name}={value}\n" for name, value in ENVIRONMENT.items()), encoding="utf-8")
    launcher = [*deepspeed(), "--hostfile", str(hostfile(rack, folder, slots)), "--launcher", "pdsh"]
    return start(rack[0], [*launcher, *script(recipe, run, *options)], folder)


def without_ssh(rack, recipe, run, *options, slots=1):
    """Start one launcher a host."""
    folder = run.parent
    table = hostfile(rack, folder, slots)
    launcher = [*deepspeed(), "--hostfile", str(table), "--no_ssh", "--master_addr", rack[0].name]
    return [
        start(host, [*launcher, "--node_rank", str(number), "--master_port", str(PORT), *script(recipe, run, *options)], folder)
        for number, host in enumerate(rack)
    ]


def by_torchrun(rack, recipe, run, *options):
    """Start the example's torchrun on each host."""
    script = ["bash", str(ROOT / "docs" / "examples" / "torchrun.sh"), "--run-dir", str(run), *options]
    shared = {"FIRST": rack[0].name, "NODES": str(len(rack.hosts)), "RECIPE": str(recipe), "PORT": str(PORT), "PYTHON": sys.executable}
    return [start(host, script, run.parent, shared | {"NODE": str(number)}) for number, host in enumerate(rack)]


def by_hand(hosts, recipe, run, *options):
    """Start a rank on each of ``hosts`` with no launcher between, which would take as long as training."""
    names = [host.name for host in hosts]
    shared = {"WORLD_SIZE": str(len(hosts)), "MASTER_ADDR": hosts[0].name, "MASTER_PORT": str(PORT)}
    started = []
    for rank, host in enumerate(hosts):
        own = {"RANK": str(rank), "LOCAL_RANK": str(names[:rank].count(host.name)), "LOCAL_WORLD_SIZE": str(names.count(host.name))}
        started.append(start(host, [sys.executable, "-u", *script(recipe, run, *options)], run.parent, shared | own))
    return started


def curve(run):
    lines = [json.loads(line) for line in (run / "train" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in line.items() if name not in NOT_OF_THE_CURVE} for line in lines]


def started_together(ranks):
    """Return the one sentence that ranks on several terminals gave in place of tracebacks; only the first may say it."""
    told = [[line for line in rank.printed.splitlines() if "error: " in line] for rank in ranks]
    assert not any("Traceback" in rank.printed for rank in ranks), "\n----\n".join(rank.printed for rank in ranks)
    assert [len(lines) for lines in told] == [1] + [0] * (len(ranks) - 1), told
    return told[0][0]
