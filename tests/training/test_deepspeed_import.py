"""Importing DeepSpeed for training leaves MLflow, which only its autotuner wants, alone."""

import subprocess
import sys

SCRIPT = """
import sys
from xlm.training.deepspeed_import import import_deepspeed

deepspeed = import_deepspeed()
assert callable(deepspeed.initialize)
print(sorted({name.partition(".")[0] for name in sys.modules} & {"mlflow", "pandas", "fastapi"}))
"""


def test_mlflow_is_not_imported_with_deepspeed():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"
