"""Which number format a run trains in: resolved once, then stored, never guessed again.

`auto` on another machine could resolve differently in the middle of a run; so the answer goes into
``run.json`` and every checkpoint, and a resumed run uses the stored one.
"""

from __future__ import annotations

from typing import Literal

import torch

from xlm.errors import UserError

Precision = Literal["fp32", "bf16", "fp16"]
Requested = Literal["auto", "fp32", "bf16", "fp16"]
# bfloat16 tensor cores arrived with compute capability 8.0 (A100).
BF16_CUDA_CAPABILITY = (8, 0)
# (ZeRO stage, precision) that tests prove. DeepSpeed 0.19 at stage 0 gives bf16 a zero-gradient first
# step, and 16 bits no fp32 accumulation, so that these cells stay empty.
SUPPORTED: dict[Precision, tuple[int, ...]] = {"fp32": (0, 1, 2, 3), "bf16": (1, 2, 3), "fp16": (1, 2, 3)}


def resolve_precision(requested: Requested, device: torch.device) -> Precision:
    """Return the precision to train in on this device.

    ``auto`` is bf16 where the hardware multiplies it (CUDA from 8.0, CPUs with AVX512_BF16 or AMX),
    else fp32. It is never fp16, whose range needs a loss scale.
    """
    if requested != "auto":
        return requested
    return "bf16" if _multiplies_bf16(device) else "fp32"


def keep_precision(requested: Requested, stored: Precision) -> Precision:
    """Return the stored precision of a run that goes on; a recipe that asks for another is a UserError."""
    if requested in ("auto", stored):
        return stored
    raise UserError(
        f"the recipe asks for training.precision {requested} but this run was started in {stored}; "
        f"set it to {stored} (or auto) to go on, or choose another --run-dir for a new run."
    )


def evaluation_precision(trained_in: str, device: torch.device) -> Precision:
    """Return the precision to score a checkpoint in: the one it was trained in, as its ``model.json`` says.

    The one exception: bf16 becomes fp32 on a device that does not multiply bf16 in hardware, where it
    would be emulated, slowly. Weights are stored in fp32, so nothing is lost by it.
    """
    return "bf16" if trained_in == "bf16" and _multiplies_bf16(device) else "fp32"


def check_supported(stage: int, precision: Precision) -> None:
    """Raise a UserError for a (ZeRO stage, precision) cell that is not proved."""
    if stage in SUPPORTED[precision]:
        return
    if stage == 0:
        raise UserError(
            f"{precision} needs ZeRO stage 1 or higher, because DeepSpeed accumulates {precision} gradients in fp32 only there; "
            "set zero_optimization.stage to 1, 2 or 3, or training.precision to fp32."
        )
    allowed = ", ".join(str(cell) for cell in SUPPORTED[precision])
    raise UserError(f"zero_optimization.stage is {stage}; with {precision} the allowed stages are {allowed}.")


def _multiplies_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= BF16_CUDA_CAPABILITY
    if device.type == "cpu":
        capabilities = torch.cpu.get_capabilities()
        return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
    return False
