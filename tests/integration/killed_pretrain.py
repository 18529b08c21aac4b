"""``pipelines/pretrain.py`` that kills itself: $KILL is ``POINT:RANK:COUNT``, the COUNT-th time RANK is at POINT.

Points: ``step`` (before a micro-batch's forward), ``terminate`` (the same, with SIGTERM twice), ``notice`` (the same, with
SIGUSR1 to the launcher and all ranks), ``save`` (before this rank writes its part), ``rename`` (all is written, the folder not
renamed yet), ``retain`` (before an old checkpoint is removed).
Others hit what feeds the rank: ``worker`` (before a micro-batch's forward, kills one of its loader workers),
``disk`` (a batch cannot be read). And what it writes to, before its part of a checkpoint: ``full`` (the file system of the
folder has no room left), ``read_only`` (checkpoints are mounted so that nothing can be written).
"""

import errno
import os
import runpy
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil

import xlm.training.checkpoint_part as checkpoint_part
import xlm.training.saving as saving
import xlm.training.visibility as visibility
from xlm.batching.loader import BatchLoader
from xlm.training.engine import TrainingEngine

POINT, RANK, COUNT = os.environ["KILL"].split(":")
seen = 0


def at(point):
    global seen
    if point == POINT and os.environ.get("RANK") == RANK:
        seen += 1
        if seen == int(COUNT):
            act()


def act():
    if POINT == "worker":
        next(child for child in psutil.Process().children() if "xlm.batching.worker_process" in child.cmdline()).kill()
    elif POINT == "disk":
        raise OSError(errno.EIO, "Input/output error", "de.arrow")
    elif POINT == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
    elif POINT == "notice":
        os.killpg(0, signal.SIGUSR1)
    elif POINT == "full":
        ballast = train_folder() / "ballast"
        ballast.write_bytes(bytes(shutil.disk_usage(ballast.parent).free - 8192))
    elif POINT == "read_only":
        # Elsewhere first: the other rank may be writing, and a mount with such a file in it cannot become read-only.
        checkpoints, aside = train_folder() / "checkpoints", train_folder() / "aside"
        aside.mkdir()
        subprocess.run(["mount", "--bind", checkpoints, aside], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", aside], check=True)
        subprocess.run(["mount", "--bind", aside, checkpoints], check=True)
    else:
        os.kill(os.getpid(), signal.SIGKILL)


def train_folder():
    return Path(sys.argv[sys.argv.index("--run-dir") + 1]) / "train"


def before(owner, name, *points):
    plain = getattr(owner, name)

    def watched(*arguments, **named):
        for point in points:
            at(point)
        return plain(*arguments, **named)

    setattr(owner, name, watched)


before(TrainingEngine, "accumulate", "step", "terminate", "notice", "worker")
before(BatchLoader, "batch", "disk")
before(checkpoint_part.Part, "write", "save", "full", "read_only")
before(saving, "make_visible", "rename")
before(visibility, "take_away", "retain")

runpy.run_path(str(Path(__file__).parents[2] / "pipelines" / "pretrain.py"), run_name="__main__")
