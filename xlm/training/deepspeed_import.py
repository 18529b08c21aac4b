"""DeepSpeed, imported without what its training engine never uses."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from types import ModuleType
from typing import Any

import torch

AUTOTUNER = "deepspeed.autotuning.autotuner"


def import_deepspeed() -> Any:  # noqa: ANN401 (DeepSpeed has no types)
    """Import DeepSpeed with its log lines and its compiled operators out of the way."""
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")
    _leave_out_autotuner()
    import deepspeed
    import deepspeed.ops
    from deepspeed.utils import logger

    _leave_muon_uncompiled()
    logger.setLevel(logging.ERROR)
    # torch renames collectives that DeepSpeed calls in every step.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed\..*")
    # Its shared-memory operator serves inference only, and compiling it takes a C++ compiler and up to a minute.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


def _leave_muon_uncompiled() -> None:
    # Every engine asks whether its optimizer is DeepSpeed's Muon. Importing that brings in torch's whole compiler, a fifth of the
    # processor time of a start, unless what it decorates stays as it is.
    from deepspeed.runtime import compiler

    compile_ = compiler.compile
    compiler.compile = lambda: compiler.dummy_decorator
    try:
        import deepspeed.runtime.zero.muon.muon_optimizer  # noqa: F401
    finally:
        compiler.compile = compile_


def _leave_out_autotuner() -> None:
    # It imports the whole of mlflow on every rank, four fifths of the time that importing DeepSpeed takes.
    stub = ModuleType(AUTOTUNER)
    stub.Autotuner = None  # type: ignore[attr-defined]
    sys.modules.setdefault(AUTOTUNER, stub)
