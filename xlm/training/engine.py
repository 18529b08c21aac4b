"""DeepSpeed behind four verbs: accumulate a micro-batch, step, read full weights, save and load.

What is kept away from the rest: DeepSpeed divides by accumulation steps and averages over ranks (undone
here, since the loss is already a part of the global mean), its loss scaling and overflow flags, and how
each ZeRO stage holds gradients and fp32 weights.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from xlm.batching.packed_batch import PackedBatch
from xlm.config.training import OptimizerSection
from xlm.errors import UserError
from xlm.training.deepspeed_config import zero_stage
from xlm.training.objectives import PretrainingObjective
from xlm.training.parameter_groups import parameter_groups
from xlm.training.step_context import StepContext


@dataclass(frozen=True)
class StepResult:
    """Whether the weights changed, and the norm of the global gradient before clipping."""

    applied: bool
    gradient_norm: float


class TrainingEngine:
    """A `PretrainingObjective` under DeepSpeed."""

    def __init__(self, objective: PretrainingObjective, config: Mapping[str, Any], optimizer: OptimizerSection) -> None:
        """Wrap the objective; the process group must exist. ``config`` is a loaded DeepSpeed configuration."""
        deepspeed = _import_deepspeed()
        groups = parameter_groups(objective.model, optimizer)
        self._lr_scales = [group["lr_scale"] for group in groups]
        adamw = torch.optim.AdamW(
            groups,
            lr=optimizer.learning_rate,
            betas=optimizer.betas,
            eps=optimizer.epsilon,
            weight_decay=optimizer.weight_decay,
            fused=True,  # one pass over memory; also built for CPUs, and the same numbers every time
        )
        with contextlib.redirect_stdout(io.StringIO()):  # DeepSpeed prints memory reports on the way
            self._engine, self._optimizer, _, _ = deepspeed.initialize(
                model=objective, optimizer=adamw, config=dict(config), dist_init_required=False
            )
        self.stage = zero_stage(config)
        self.objective = objective
        self._world_size = dist.get_world_size()
        # Only then gradients stay where autograd leaves them, and nothing scales the loss.
        objective.model.adds_to_gradients = self.stage == 0 and self._world_size == 1
        if self.stage in (1, 2):
            # DeepSpeed looks for infinite gradients in 16 bits only; a diverged fp32 step is skipped as well.
            self._optimizer.check_grad_overflow = True

    @property
    def device(self) -> torch.device:
        """Where batches have to be."""
        return torch.device(self._engine.device)

    @property
    def is_bf16(self) -> bool:
        """Whether weights are computed with in bf16."""
        return bool(self._engine.bfloat16_enabled())

    def accumulate(self, batch: PackedBatch, context: StepContext, *, with_pairs: bool, last: bool) -> None:
        """Add the gradient of one micro-batch; ``last`` ends the step's accumulation and reduces over ranks."""
        self._engine.set_gradient_accumulation_boundary(last)
        loss = self._engine(batch, context, with_pairs)
        # DeepSpeed averages gradients over ranks; the parts are to be summed.
        self._engine.backward(loss * self._world_size, scale_wrt_gas=False)
        if not last:
            self._engine.step()  # counts the micro-batch; nothing is updated before the boundary

    def step(self, learning_rate: float) -> StepResult:
        """Clip and update; a gradient that is not finite leaves the weights alone on all ranks alike."""
        for group, scale in zip(self._optimizer.param_groups, self._lr_scales, strict=True):
            group["lr"] = learning_rate * scale
        if self.stage == 0:
            return self._step_without_zero()
        self._engine.step()
        applied = not bool(getattr(self._optimizer, "overflow", False))
        norm = self._engine.get_global_grad_norm()
        return StepResult(applied, float(norm) if applied and norm is not None else math.inf)

    def _step_without_zero(self) -> StepResult:
        # Without ZeRO every rank holds the reduced gradient, and DeepSpeed reports no norm.
        gradients = [parameter.grad for parameter in self.objective.parameters() if parameter.grad is not None]
        norm = float(nn.utils.get_total_norm(gradients))
        if not math.isfinite(norm):
            self._engine.zero_grad()
            return StepResult(False, math.inf)
        self._engine.step()
        return StepResult(True, norm)

    def full_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield each parameter of the model in fp32 on the CPU, by name; every rank must go through all of them."""
        from deepspeed.utils import safe_get_full_fp32_param

        for name, parameter in self.objective.model.named_parameters():
            full = parameter if self.stage == 0 else safe_get_full_fp32_param(parameter)
            if full is None:
                raise RuntimeError(f"DeepSpeed holds no fp32 weights of '{name}' at ZeRO stage {self.stage}")
            yield name, full.detach().to("cpu", torch.float32).clone()

    def save(self, folder: Path) -> None:
        """Write DeepSpeed's own files of all ranks into ``folder``; no `latest` pointer is touched."""
        self._engine.save_checkpoint(str(folder.parent), tag=folder.name, save_latest=False)

    def load(self, folder: Path) -> None:
        """Take up weights and optimizer from a folder written by `save` on the same number of ranks; UserError where there is nothing."""
        found, _ = self._engine.load_checkpoint(str(folder.parent), tag=folder.name)
        if found is None:
            # DeepSpeed only warns, and training would go on from initial weights under the checkpoint's step.
            raise UserError("DeepSpeed finds no state in this checkpoint; delete its folder to go on from the one before.", file=folder)

    def set_dropout_key(self, *parts: int | str) -> None:
        """Start the dropout masks of a micro-batch; see `xlm.model.dropout`."""
        self.objective.model.encoder.dropout_key.set(*parts)


def _import_deepspeed() -> Any:  # noqa: ANN401 (DeepSpeed has no types)
    # Its shared-memory operator serves inference only, and compiling it takes a C++ compiler and up to a minute.
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")
    import deepspeed
    import deepspeed.ops
    from deepspeed.utils import logger

    logger.setLevel(logging.ERROR)
    # torch renames collectives that DeepSpeed calls in every step.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed\..*")
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed
