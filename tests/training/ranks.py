"""Start a worker script on several ranks of this machine and wait for all of them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def start_ranks(script, arguments, world_size):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}",
    }
    return [
        subprocess.Popen(
            [sys.executable, str(HERE / script), *arguments],
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world_size)
    ]


def run_ranks(script, arguments, world_size, timeout_s=540):
    processes = start_ranks(script, arguments, world_size)
    try:
        outputs = [process.communicate(timeout=timeout_s)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    # All that failed: the one that others miss is rarely the first.
    ended = [
        f"rank {rank} ended with {process.returncode}:\n{outputs[rank]}" for rank, process in enumerate(processes) if process.returncode
    ]
    assert not ended, "\n".join(ended)
    return outputs
