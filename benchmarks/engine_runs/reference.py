"""The same training in one process of plain PyTorch: torch's cross-entropy, clipping and AdamW over the global batch.

Its micro-batches are those of the ranks it is compared with, rank by rank, so that no row is multiplied in other company.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from data import Pieces
from engine_runs.cases import RANKS, VOCABULARY_SIZE, LossCase
from torch.nn.functional import cross_entropy

from xlm.batching.loader import BatchLoader
from xlm.batching.packed_batch import PackedBatch
from xlm.mixing.data_plan import DataPlan
from xlm.model.pretraining import PretrainingModel
from xlm.seeding import keyed_generator
from xlm.shards.reader import ShardSet
from xlm.training.parameter_groups import parameter_groups
from xlm.training.schedule import learning_rate_at

Order = Callable[[int, int], Sequence[int]]  # (step, micro-batches) -> their order


def in_order(step: int, count: int) -> Sequence[int]:
    """Return the micro-batches as they come."""
    return range(count)


def permuted(number: int) -> Order:
    """Return permutation ``number``: another order of the micro-batches in every step."""

    def order(step: int, count: int) -> Sequence[int]:
        return np.asarray(keyed_generator("order", number, step).permutation(count)).tolist()

    return order


def reference_losses(case: LossCase, shards: Path, order: Order = in_order) -> list[float]:
    """Train and return each step's loss: the mean over the predictions of the global batch."""
    recipe = case.recipe()
    opened = ShardSet(shards, "made")
    plan = DataPlan(recipe, opened.index)
    tokens = recipe.training.micro_batch_tokens
    loaders = [
        BatchLoader(plan, opened, Pieces(), recipe.seed, rank=rank, world_size=RANKS, micro_batch_tokens=tokens) for rank in range(RANKS)
    ]
    model = PretrainingModel(recipe.model, VOCABULARY_SIZE, len(plan.languages), seed=recipe.seed)
    model.tie_weights()
    section = recipe.training.optimizer
    optimizer = torch.optim.AdamW(
        parameter_groups(model, section), betas=section.betas, eps=section.epsilon, weight_decay=section.weight_decay, fused=True
    )
    found = []
    for step in range(recipe.total_steps):
        batches = [batch for loader in loaders for batch in loader.batch(step)]
        predictions = sum(len(batch.labels) for batch in batches)
        optimizer.zero_grad()
        losses = [_loss(model, batches[place]) / predictions for place in order(step, len(batches))]
        for loss in losses:
            loss.backward()
        _clip(list(model.parameters()), recipe.training.gradient_clipping)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(recipe, step, 0) * group["lr_scale"]
        optimizer.step()
        found.append(sum(loss.item() for loss in losses))
    return found


def _clip(parameters: Sequence[torch.nn.Parameter], most: float) -> None:
    # `clip_grad_norm_` adds squares in the gradients' own precision: of two million numbers in fp32 the norm comes out 5e-5 too small
    # on a CPU, while ZeRO's is of fp64.
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.stack([torch.linalg.vector_norm(gradient, dtype=torch.float64) for gradient in gradients]).norm()
    torch.nn.utils.clip_grads_with_norm_(parameters, most, norm)


def _loss(model: PretrainingModel, batch: PackedBatch) -> torch.Tensor:
    hidden = model.encode(batch, model.token_tables())
    return cross_entropy(model.logits(hidden[batch.predict_positions]), batch.labels, reduction="sum")
