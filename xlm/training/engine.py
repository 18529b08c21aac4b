"""DeepSpeed behind four verbs: accumulate a micro-batch, step, read full weights, save and load.

What is kept away from the rest: DeepSpeed divides by accumulation steps and averages over ranks (undone
here, since the loss is already a part of the global mean), its loss scaling and overflow flags, and how
each ZeRO stage holds gradients and fp32 weights.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from xlm.batching.packed_batch import PackedBatch
from xlm.config.training import LossScaleSection, OptimizerSection
from xlm.training.deepspeed_config import zero_stage
from xlm.training.deepspeed_import import import_deepspeed
from xlm.training.engine_layout import full_weights
from xlm.training.engine_state import read_state, snapshot, write_rank_state
from xlm.training.loss_scale import LossScale
from xlm.training.objectives import PretrainingObjective
from xlm.training.optimizers.build import build_optimizer, tell_layout
from xlm.training.parameter_groups import parameter_groups
from xlm.training.step_context import StepContext


@dataclass(frozen=True)
class StepResult:
    """Whether the weights changed, and the norm of the global gradient before clipping, without a loss scale."""

    applied: bool
    gradient_norm: float
    scale_too_high: bool = False  # the gradient was not finite under a loss scale of fp16 that has been lowered since


class TrainingEngine:
    """A `PretrainingObjective` under DeepSpeed."""

    def __init__(
        self,
        objective: PretrainingObjective,
        config: Mapping[str, Any],
        optimizer: OptimizerSection,
        loss_scale: LossScaleSection | None = None,
    ) -> None:
        """Wrap the objective; the process group must exist. ``config`` is a loaded DeepSpeed configuration."""
        deepspeed = import_deepspeed()
        config = dict(config)
        # None in other precisions than fp16, where nothing scales the loss.
        self.loss_scale = LossScale(loss_scale or LossScaleSection()) if config.get("fp16", {}).get("enabled") else None
        if self.loss_scale is not None:
            config["fp16"] = {**config["fp16"], "loss_scale": self.loss_scale.value}  # a fixed one, which follows ours
            _allow_fp16_on_cpus()
        groups = parameter_groups(objective.model, optimizer)
        self._lr_scales = [group["lr_scale"] for group in groups]
        low_precision = any(config.get(name, {}).get("enabled") for name in ("bf16", "fp16"))
        base = build_optimizer(groups, optimizer, low_precision=low_precision)
        config["zero_force_ds_cpu_optimizer"] = False  # offloaded states are stepped by the same optimizer, with the same numbers
        config["zero_allow_untested_optimizer"] = True  # those of xlm.training.optimizers, which are tested here
        with contextlib.redirect_stdout(io.StringIO()):  # DeepSpeed prints memory reports on the way
            self._engine, self._optimizer, _, _ = deepspeed.initialize(
                model=objective, optimizer=base, config=config, dist_init_required=False
            )
        self.stage = zero_stage(config)
        self._modules_around = _modules_being_run()
        tell_layout(base, self._optimizer, self.stage, self.device)
        self.objective = objective
        self._world_size = dist.get_world_size()
        # Only then gradients stay where autograd leaves them, and nothing scales the loss.
        objective.model.adds_to_gradients = self.stage == 0 and self._world_size == 1
        if self.stage in (1, 2):
            # DeepSpeed looks for infinite gradients in 16 bits only; a diverged fp32 step is skipped as well.
            self._optimizer.check_grad_overflow = True
        self._apply_loss_scale()

    @property
    def wrapped_engine(self) -> Any:  # noqa: ANN401 (DeepSpeed has no types)
        """DeepSpeed's engine."""
        return self._engine

    @property
    def wrapped_optimizer(self) -> Any:  # noqa: ANN401
        """What `deepspeed.initialize` made of the optimizer: itself at stage 0."""
        return self._optimizer

    @property
    def device(self) -> torch.device:
        """Where batches have to be."""
        return torch.device(self._engine.device)

    @property
    def is_bf16(self) -> bool:
        """Whether weights are computed with in bf16."""
        return bool(self._engine.bfloat16_enabled())

    def accumulate(self, batch: PackedBatch, context: StepContext, *, with_pairs: bool, last: bool) -> Tensor:
        """Add the gradient of one micro-batch and return its part of the step's loss; ``last`` ends the step's accumulation."""
        self._engine.set_gradient_accumulation_boundary(last)
        loss = self._engine(batch, context, with_pairs)
        # DeepSpeed averages gradients over ranks; the parts are to be summed.
        self._engine.backward(loss * self._world_size, scale_wrt_gas=False)
        if not last:
            self._engine.step()  # counts the micro-batch; nothing is updated before the boundary
        part: Tensor = loss.detach()
        return part

    def step(self, learning_rate: float) -> StepResult:
        """Clip and update; a gradient that is not finite leaves the weights alone on all ranks alike."""
        for group, scale in zip(self._optimizer.param_groups, self._lr_scales, strict=True):
            group["lr"] = learning_rate * scale
        if self.stage == 0:
            return self._step_without_zero()
        self._engine.step()
        applied = not bool(getattr(self._optimizer, "overflow", False))
        norm = self._engine.get_global_grad_norm()
        scale_too_high = self.loss_scale is not None and self.loss_scale.follow(applied)
        self._apply_loss_scale()
        if not applied and self.stage < 3:
            # DeepSpeed leaves the fp32 sums of an offloaded step that it skips, and would add all later ones to them.
            sums = getattr(self._optimizer, "averaged_gradients", {})
            sums.update(dict.fromkeys(sums))
        if self.stage == 3:
            _modules_being_run(self._modules_around)
        return StepResult(applied, float(norm) if applied and norm is not None else math.inf, scale_too_high)

    def _apply_loss_scale(self) -> None:
        factor = float(self._world_size)
        if self.loss_scale is not None:
            self._optimizer.loss_scaler.cur_scale = self.loss_scale.value
            factor *= self.loss_scale.value
        self.objective.model.loss_factor = factor

    def _step_without_zero(self) -> StepResult:
        # Without ZeRO every rank holds the reduced gradient, and DeepSpeed reports no norm.
        gradients = [parameter.grad for parameter in self.objective.parameters() if parameter.grad is not None]
        norm = float(nn.utils.get_total_norm(gradients))
        if not math.isfinite(norm):
            self._engine.zero_grad()
            return StepResult(False, math.inf)
        self._engine.step()
        return StepResult(True, norm)

    def evaluate(self, batch: PackedBatch, context: StepContext) -> None:
        """Have the losses of a micro-batch counted, without dropout and gradients; every rank must call it as often."""
        trained = [module for module in self.objective.modules() if module.training]
        for module in trained:
            module.training = False
        try:
            with torch.no_grad():
                self._engine(batch, context, False)
        finally:
            for module in trained:
                module.training = True

    def full_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield each parameter of the model in fp32 on the CPU, by name; every rank must go through all of them."""
        return full_weights(self)

    def save(self, folder: Path) -> None:
        """Write this rank's part of the optimizer's state into ``folder``; weights are written from `full_weights`."""
        write_rank_state(snapshot(self), folder, dist.get_rank(), self._world_size)

    def load(self, folder: Path) -> None:
        """Take up weights and optimizer state that any number of ranks wrote at any stage; UserError where something is missing."""
        read_state(self, folder)
        self._apply_loss_scale()

    def set_dropout_key(self, *parts: int | str) -> None:
        """Start the dropout masks of a micro-batch; see `xlm.model.dropout`."""
        self.objective.model.encoder.dropout_key.set(*parts)


def _modules_being_run(keep: int | None = None) -> int:
    # ZeRO 3 notes which modules are under way, and misses the end of those whose second run activation checkpointing cuts short.
    from deepspeed.runtime.zero.parameter_offload import FWD_MODULE_STACK

    if keep is not None:
        del FWD_MODULE_STACK[keep:]
    return len(FWD_MODULE_STACK)


def _allow_fp16_on_cpus() -> None:
    # DeepSpeed refuses fp16 where a CPU has no instructions for it; torch computes it there all the same, only slower.
    from deepspeed.accelerator import get_accelerator

    accelerator = get_accelerator()
    if accelerator.device_name() == "cpu":
        accelerator.is_fp16_supported = lambda: True
