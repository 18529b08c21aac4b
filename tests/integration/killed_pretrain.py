"""``pipelines/pretrain.py`` that kills itself: $KILL is ``POINT:RANK:COUNT``, the COUNT-th time RANK is at POINT.

Points: ``step`` (before a micro-batch's forward), ``terminate`` (the same, with SIGTERM), ``save`` (before
this rank writes its part), ``saved`` (after it), ``rename`` (all is written, the folder not renamed yet).
"""

import os
import runpy
import signal
from pathlib import Path

import xlm.training.engine as engine

POINT, RANK, COUNT = os.environ["KILL"].split(":")
seen = 0


def at(point):
    global seen
    if point == POINT and os.environ.get("RANK") == RANK:
        seen += 1
        if seen == int(COUNT):
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


before(engine.TrainingEngine, "accumulate", "step", "terminate")
before(engine.TrainingEngine, "save", "save", after=("saved",))
before(Path, "rename", "rename")

runpy.run_path(str(Path(__file__).parents[2] / "pipelines" / "pretrain.py"), run_name="__main__")
