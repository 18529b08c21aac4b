"""Importing DeepSpeed for training leaves alone what only its autotuner wants, MLflow, and what only its Muon wants, torch's compiler."""

import subprocess
import sys

SCRIPT = """
import sys
from xlm.training.deepspeed_import import import_deepspeed

deepspeed = import_deepspeed()
assert callable(deepspeed.initialize)
import torch
from deepspeed.runtime import compiler
import deepspeed.runtime.zero.muon.muon_optimizer
assert compiler.compile() is torch.compile
print(sorted({name.partition(".")[0] for name in sys.modules} & {"mlflow", "pandas", "fastapi"}))
print("torch._inductor.compile_fx" in sys.modules)
"""


def test_neither_mlflow_nor_the_compiler_is_imported_with_deepspeed():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-2:] == ["[]", "False"]
