"""``pipelines/pretrain.py`` that kills itself: $KILL is ``POINT:RANK:COUNT``, the COUNT-th time RANK is at POINT.

Points: ``step`` (before a micro-batch's forward), ``terminate`` (the same, with SIGTERM), ``save`` (before
this rank writes its part), ``saved`` (after it), ``rename`` (all is written, the folder not renamed yet).
Others hit what feeds the rank: ``worker`` (before a micro-batch's forward, kills one of its loader workers),
``disk`` (a batch cannot be read).
"""

import errno
import os
import runpy
import signal
from pathlib import Path

import psutil

import xlm.training.engine as engine
from xlm.batching.loader import BatchLoader

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
    else:
        os.kill(os.getpid(), signal.SIGTERM if POINT == "terminate" else signal.SIGKILL)


def before(owner, name, *points, after=()):
    plain = getattr(owner, name)

    def watched(*arguments, **named):
        for point in points:
            at(point)
        result = plain(*arguments, **named)
        for point in after:
            at(point)
        return result

    setattr(owner, name, watched)


before(engine.TrainingEngine, "accumulate", "step", "terminate", "worker")
before(BatchLoader, "batch", "disk")
before(engine.TrainingEngine, "save", "save", after=("saved",))
before(Path, "rename", "rename")

runpy.run_path(str(Path(__file__).parents[2] / "pipelines" / "pretrain.py"), run_name="__main__")
