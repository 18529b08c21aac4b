"""Three ranks that only call each other, for each of the scenarios in argv ``WHAT:RANKS``; torch is loaded once for all.

What goes wrong on which ranks: "mistake" is found before they meet, "lost" is killed while they do, "late mistake",
"bug", "killed" and "stuck" (longer than ranks wait) come after it. Prints JSON: of each scenario the exit codes, and what each
rank printed.
"""

import json
import os
import signal
import socket
import sys
import tempfile
import time

import torch
import torch.distributed as dist

from xlm.errors import UserError, exits_cleanly
from xlm.training.distributed import Process
from xlm.training.roll_call import RollCall

RANKS = 3


def compare(wrong):
    if wrong == "lost":
        os.kill(os.getpid(), signal.SIGKILL)


def train(what, who):
    process = Process.from_environment()
    wrong = what if process.rank in who else None
    with RollCall(process) as roll_call:
        if wrong == "mistake":
            raise UserError("the recipe is not there.")
        roll_call.meet(dict, 4 if what == "stuck" else 60, lambda members: compare(wrong))
        dist.all_reduce(torch.ones(1))
        if wrong == "late mistake":
            raise UserError("the disk is full.")
        if wrong == "bug":
            raise ZeroDivisionError("division by zero")
        if wrong == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if wrong == "stuck":
            stand_still()
        dist.all_reduce(torch.ones(1))


def stand_still():
    time.sleep(14)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(rank, port, printed, what, who):
    """Fork a rank; its exit is Python's, after what it printed is in the file."""
    child = os.fork()
    if child:
        return child
    os.dup2(printed.fileno(), 1)
    os.dup2(printed.fileno(), 2)
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_WORLD_SIZE": RANKS}
    os.environ.update({name: str(value) for name, value in own.items()} | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
    code = 0
    try:
        exits_cleanly(lambda: train(what, who))()
    except SystemExit as end:
        code = end.code
    except Exception:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stderr.flush()
    os._exit(code)


def main():
    results = []
    for scenario in sys.argv[1:]:
        what, _, who = scenario.partition(":")
        port, ranks = free_port(), [int(rank) for rank in who.split(",")]
        printed = [tempfile.TemporaryFile("w+") for _ in range(RANKS)]  # noqa: SIM115 - ends with this process
        children = [start(rank, port, printed[rank], what, ranks) for rank in range(RANKS)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        texts = []
        for file in printed:
            file.seek(0)
            texts.append(file.read())
        results.append([codes, texts])
    print(json.dumps(results))


if __name__ == "__main__":
    main()
