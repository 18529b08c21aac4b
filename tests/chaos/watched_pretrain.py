"""``pipelines/pretrain.py`` that says where it is, and dies by its own hand where $KILL says.

Where: byte 0 to 2 of ``$PLACES/<rank>`` are 1 while it is in the loop, writes its part of a checkpoint, makes one visible; they
outlive a kill. $KILL is empty, ``event:RANK:COUNT`` (SIGKILL before the COUNT-th change that RANK makes in the
folder of checkpoints) or ``byte:RANK:SAVE:COUNT`` (the system ends RANK where a file of its SAVE-th part would grow beyond COUNT
bytes: SIGXFSZ, with what fits into it written).
"""

import itertools
import os
import resource
import runpy
import signal
import sys
from pathlib import Path

import xlm.training.checkpoint_part as checkpoint_part
import xlm.training.saving as saving
from xlm.training.step_runner import StepRunner

RANK = os.environ["RANK"]
KIND, *ABOUT = os.environ["KILL"].split(":")
IN_LOOP, IN_SAVE, IN_RENAME = range(3)
CHANGES = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod"}
places = os.open(Path(os.environ["PLACES"]) / RANK, os.O_RDWR | os.O_CREAT)
os.pwrite(places, bytes(3) + f" {os.getpid()}".encode(), 0)
parts = itertools.count(1)


def watched(owner, name, place, before=lambda: None, after=lambda: None, stays=False):
    plain = getattr(owner, name)

    def told(*arguments, **named):
        os.pwrite(places, b"\1", place)
        before()
        try:
            return plain(*arguments, **named)
        finally:
            after()
            if not stays:
                os.pwrite(places, b"\0", place)

    setattr(owner, name, told)


def limit_files():
    if KIND == "byte" and ABOUT[0] == RANK and next(parts) == int(ABOUT[1]):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(ABOUT[2]), resource.RLIM_INFINITY))


def lift_limit():
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


if KIND == "byte":  # Python ignores the signal, and handlers are the main thread's
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
watched(StepRunner, "fetch", IN_LOOP, stays=True)
watched(checkpoint_part.Part, "write", IN_SAVE, before=limit_files, after=lift_limit)
watched(saving, "make_visible", IN_RENAME)
watched(saving, "retain", IN_RENAME)

if KIND == "event" and ABOUT[0] == RANK:
    changes = itertools.count(1)

    def count(event, arguments):
        if event in CHANGES and "/checkpoints" in str(arguments[0]) and next(changes) == int(ABOUT[1]):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)

runpy.run_path(str(Path(__file__).parents[2] / "pipelines" / "pretrain.py"), run_name="__main__")
