"""Run a worker script on several ranks of this machine, and wait for all of them."""

import os
import socket
import tempfile
import time
from pathlib import Path

from warm_scripts import WarmScript

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def run_ranks(script, arguments, world_size, timeout_s=540):
    """Return what each rank printed; a rank that fails, or takes longer, fails the test with what all of them printed."""
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
    with tempfile.TemporaryDirectory() as folder:
        printed = [Path(folder) / str(rank) for rank in range(world_size)]
        ranks = [
            WarmScript(
                [HERE / script, *arguments], env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}, cwd=ROOT, output=printed[rank]
            )
            for rank in range(world_size)
        ]
        until = time.monotonic() + timeout_s
        try:
            codes = [rank.wait(max(0.0, until - time.monotonic())) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
        outputs = [path.read_text(encoding="utf-8") for path in printed]
    # All that failed: the one that others miss is rarely the first.
    ended = [f"rank {rank} ended with {codes[rank]}:\n{outputs[rank]}" for rank in range(world_size) if codes[rank] != 0]
    assert not ended, "\n".join(ended)
    return outputs
