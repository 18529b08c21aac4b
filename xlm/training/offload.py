"""Offloading in a DeepSpeed file: the optimizer's state, and at ZeRO stage 3 the weights, wait in the memory of the CPU.

ZeRO-Offload (Ren et al. 2021). The state is stepped by the optimizer of the recipe where it lies, by the CPU, instead of by
DeepSpeed's CPUAdam, which has to be compiled and rounds in another way: the same numbers as without offloading, more slowly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xlm.config.training import TrainingSection
from xlm.errors import UserError, suggest

OFFLOAD_KEYS = ("offload_optimizer", "offload_param")
KEYS = ("device", "pin_memory")
STAGES = {"offload_optimizer": (1, 2, 3), "offload_param": (3,)}
DEVICES = ("cpu", "none")


def is_offloaded(zero: Mapping[str, Any], key: str) -> bool:
    """Return whether a checked ``zero_optimization`` section offloads what ``key`` of OFFLOAD_KEYS names."""
    return bool(zero.get(key, {}).get("device", "none") != "none")


def check_offload(zero: Mapping[str, Any], stage: int, training: TrainingSection, path: Path) -> None:
    """Raise a UserError for an offload section with a mistake, or one that is not proved with this stage or optimizer."""
    for key in OFFLOAD_KEYS:
        if key not in zero:
            continue
        _check_section(zero[key], f"zero_optimization.{key}", path)
        if not is_offloaded(zero, key):
            continue
        if stage not in STAGES[key]:
            allowed = " and ".join(", ".join(str(allowed) for allowed in STAGES[key]).rsplit(", ", 1))
            raise UserError(
                f"'zero_optimization.{key}' is for stage {allowed}, but the stage is {stage}; remove it, or change the stage.", file=path
            )
        if key == "offload_optimizer" and training.optimizer.kind != "adamw":
            raise UserError(
                f"'zero_optimization.{key}' is proved with training.optimizer.kind adamw alone, but the recipe's is "
                f"{training.optimizer.kind}, which looks at whole tensors; remove it, or use adamw.",
                file=path,
            )


def _check_section(section: object, dotted: str, path: Path) -> None:
    if not isinstance(section, Mapping):
        raise UserError(f'\'{dotted}\' is {json.dumps(section)}; allowed is an object like {{"device": "cpu"}}.', file=path)
    for key in section:
        if key not in KEYS:
            hint = suggest(key, KEYS) or "; allowed there: " + ", ".join(KEYS)
            raise UserError(f"unknown key '{dotted}.{key}'{hint}.", file=path)
    device = section.get("device", "none")
    if device == "nvme":
        raise UserError(
            f"'{dotted}.device' is nvme, which is not supported: checkpoints are taken from memory, and what lies on a disk is not there; "
            "use cpu.",
            file=path,
        )
    if device not in DEVICES:
        raise UserError(f"'{dotted}.device' is {json.dumps(device)}; allowed are cpu and none.", file=path)
    if not isinstance(section.get("pin_memory", True), bool):
        raise UserError(f"'{dotted}.pin_memory' is {json.dumps(section['pin_memory'])}; allowed is true or false.", file=path)
