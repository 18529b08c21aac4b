"""What a rank loads, for `warm_scripts` to load once."""

import threading
from importlib import import_module

import torch

from xlm.training.deepspeed_import import import_deepspeed

for name in ("mlflow.tracking", "xlm.tracking.mlflow_run", "xlm.training.assembly"):
    import_module(name)
import_deepspeed()
# The first optimizer of a process loads torch's compiler.
torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])
torch.nn.utils.skip_init(torch.nn.Linear, 1, 1)
assert threading.active_count() == 1, "a fork would miss the other threads"
