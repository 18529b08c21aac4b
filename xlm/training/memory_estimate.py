"""How much memory each rank needs for a model, a ZeRO stage and a number of ranks, before anything is started.

Rajbhandari et al. 2020 ("ZeRO", section 3) count K = 12 bytes a parameter of fp32 master weights and Adam's two moments, and
2 + 2 of weights and gradients in 16 bits: stage 1 divides K by the number of ranks, stage 2 the gradients, too, stage 3
everything. What DeepSpeed 0.19 and this project do beside that is counted here as well:

- fp32 trains with a master copy of its own from stage 1 on;
- gradients add up in fp32, at stage 1 all of them on every rank;
- in fp32 at stages 1 and 2 a tensor that a rank owns a part of is kept whole: mostly the token table, on every rank;
- reduction copies up to a bucket of gradients, at stage 0 and in bf16 at stage 1 all of them;
- the vocabulary loss makes the token table's gradient with the loss, while all activations are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from xlm.config.model import ModelConfig
from xlm.config.training import OptimizerSection
from xlm.model.pretraining import PretrainingModel
from xlm.training.activation_memory import FP32, ActivationMemory
from xlm.training.offload import is_offloaded
from xlm.training.parameter_groups import parameter_groups
from xlm.training.precision import Precision

NUMBER_BYTES: dict[Precision, int] = {"fp32": 4, "bf16": 2, "fp16": 2}
# DeepSpeed's own: numbers of a bucket, of all gradients that are reduced at once at stage 0, of weights gathered at stage 3.
BUCKET, ALL_AT_ONCE, LIVE = 500_000_000, 500_000_000, 1_000_000_000
# Adam's moments; Muon keeps one for hidden matrices, which are counted as two.
MOMENTS = 2


@dataclass(frozen=True)
class ModelSizes:
    """Numbers of the model's tensors, by the optimizer's groups, in the order in which ZeRO cuts them into runs."""

    groups: tuple[tuple[int, ...], ...]
    table: int  # the token table, or the largest of several

    @classmethod
    def of(cls, config: ModelConfig, vocabulary: int, languages: int, optimizer: OptimizerSection) -> ModelSizes:
        """Measure a model that is never filled with numbers."""
        with torch.device("meta"):
            model = PretrainingModel(config, vocabulary, languages, seed=None)
        groups = tuple(tuple(one.numel() for one in group["params"]) for group in parameter_groups(model, optimizer))
        return cls(groups, model.encoder.embeddings.tokens.weight.numel())

    @property
    def parameters(self) -> int:
        """All numbers."""
        return sum(sum(group) for group in self.groups)

    def part(self, ranks: int) -> int:
        """Return how many numbers a rank owns."""
        return sum(-(-sum(group) // ranks) for group in self.groups)

    def owned_whole(self, ranks: int) -> int:
        """Return how many numbers the tensors have of which a rank owns at least a part, for the rank with most."""
        return max(sum(_overlapping(group, ranks, rank) for group in self.groups) for rank in range(ranks))


def _overlapping(group: tuple[int, ...], ranks: int, rank: int) -> int:
    part = -(-sum(group) // ranks)
    start, found = 0, 0
    for size in group:
        if start < (rank + 1) * part and start + size > rank * part:
            found += size
        start += size
    return found


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes of one rank: what it holds from step to step, and what comes on top at the three moments that need most."""

    held: Mapping[str, int]
    host: Mapping[str, int]  # offloaded: in the CPU's memory
    at_loss: Mapping[str, int]
    reducing: Mapping[str, int]
    stepping: Mapping[str, int]
    copied_by_cpu: int = 0  # in reduction: a CPU adds a 16-bit gradient to an fp32 sum by way of an fp32 copy, the largest of the table's

    @property
    def moments(self) -> dict[str, Mapping[str, int]]:
        """The moments by name."""
        return {"loss and backward": self.at_loss, "reduction": self.reducing, "step": self.stepping}

    @property
    def device_bytes(self) -> int:
        """The highest memory of a GPU, or of a process without one apart from what is offloaded."""
        return sum(self.held.values()) + max(sum(moment.values()) for moment in self.moments.values())

    @property
    def total_bytes(self) -> int:
        """The highest memory of a rank whose device is the CPU."""
        moments = {name: sum(moment.values()) for name, moment in self.moments.items()}
        moments["reduction"] += self.copied_by_cpu
        return sum(self.held.values()) + max(moments.values()) + sum(self.host.values())


def estimate_memory(
    sizes: ModelSizes, zero: Mapping[str, Any], precision: Precision, ranks: int, activations: ActivationMemory, micro_batches: int
) -> MemoryEstimate:
    """Estimate a rank's memory; ``zero`` is the ``zero_optimization`` section of a DeepSpeed file."""
    stage, wide = int(zero.get("stage", 0)), NUMBER_BYTES[precision]
    everything, part, table = sizes.parameters, sizes.part(ranks), sizes.table
    bucket = min(int(zero.get("reduce_bucket_size", BUCKET)), everything)
    whole = sizes.owned_whole(ranks)
    several = micro_batches > 1
    held: dict[str, int] = {}
    host: dict[str, int] = {}
    state = host if is_offloaded(zero, "offload_optimizer") else held

    # What stays.
    if stage < 3:
        held["weights"] = wide * everything
    else:
        (host if is_offloaded(zero, "offload_param") else held)["weights, a part"] = wide * part
        held["weights, gathered"] = wide * min(everything, int(zero.get("stage3_max_live_parameters", LIVE)))
    if stage > 0:
        state["master weights"] = FP32 * part
    state["optimizer states"] = MOMENTS * FP32 * (part if stage > 0 else everything)

    # Gradients of earlier micro-batches, and what reduction copies.
    earlier, reducing = {}, {}
    stays = 0
    if stage == 0:
        stays, reducing = FP32 * everything, {"reduction": FP32 * min(everything, ALL_AT_ONCE) if ranks > 1 else 0}
    elif stage == 1 and precision == "fp32":
        stays, reducing = FP32 * everything, {"reduction": FP32 * whole}
    elif stage == 1:
        stays, reducing = FP32 * everything, {"reduction": FP32 * min(everything, ALL_AT_ONCE)}
    elif stage == 2 and precision == "fp32":
        stays, reducing = FP32 * whole, {"reduction": FP32 * (bucket + (whole if several else 0))}
    elif stage == 2:
        stays, reducing = FP32 * part, {"reduction": wide * table + FP32 * max(bucket, table)}
    else:
        stays, reducing = FP32 * part, {"reduction": wide * table + FP32 * max(bucket, table)}
    always = stage == 3 or (stage == 1 and precision == "bf16") or state is host
    gradients = {"gradients": stays}
    if always:
        (host if state is host else held).update(gradients)
        gradients = {}
    if several:
        earlier = gradients
    return MemoryEstimate(
        held=held,
        host=host,
        at_loss={
            **earlier,
            "activations": activations.kept,
            "token table's gradient": wide * table,
            "vocabulary loss, backward": max(activations.at_loss, activations.in_backward),
        },
        reducing={**gradients, **reducing},
        stepping={**gradients, "step": FP32 * max(-(-sum(group) // ranks) for group in sizes.groups)},
        copied_by_cpu=0 if precision == "fp32" else FP32 * table,
    )
