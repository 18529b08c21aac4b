"""Batches and a builder of them for tests of how they travel; imported by worker processes as well."""

import os
import signal
import time
from dataclasses import dataclass, field, fields
from pathlib import Path

import torch
from torch import Tensor

from xlm.batching.packed_batch import PackedBatch
from xlm.errors import UserError


def made_up_batch(step, tokens=40):
    """A batch whose every tensor says which step it is of."""
    columns = {}
    for number, each in enumerate(fields(PackedBatch)):
        if each.name == "provenance":
            continue
        dtype = torch.int32 if each.name == "cu_seqlens" else torch.int64
        columns[each.name] = torch.arange(tokens + number, dtype=dtype) + 1000 * step
    return PackedBatch(**columns, provenance=((f"step {step}",),))


def same_batches(ones, others):
    return len(ones) == len(others) and all(
        torch.equal(value, getattr(other, each.name)) and value.dtype == getattr(other, each.name).dtype
        if isinstance(value := getattr(one, each.name), Tensor)
        else value == getattr(other, each.name)
        for one, other in zip(ones, others, strict=True)
        for each in fields(PackedBatch)
    )


@dataclass
class MadeUpBuilder:
    """Builds steps; ``at`` says what else happens at some of them: "kill", "term", "int", "user error", "bug", "exit", "hang"."""

    at: dict = field(default_factory=dict)
    takes_s: float = 0.0
    notes: str = ""  # a folder where each built step and its process are noted

    def batch(self, step):
        time.sleep(self.takes_s)
        if self.notes:
            (Path(self.notes) / f"{step}-{os.getpid()}").touch()
        what = self.at.get(step)
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif what == "term":
            os.kill(os.getpid(), signal.SIGTERM)
        elif what == "int":
            os.kill(os.getpid(), signal.SIGINT)
        elif what == "user error":
            raise UserError("the shard is gone; build it again.", file="shards/de.arrow")
        elif what == "bug":
            raise ZeroDivisionError("a bug")
        elif what == "exit":
            os._exit(3)
        elif what == "hang":
            time.sleep(120)
        return [made_up_batch(step), made_up_batch(step + 1, tokens=0)]
