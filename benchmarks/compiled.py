"""What torch.compile makes of the small operations of a layer: an optimizer step with them compiled against one as it is.

    python benchmarks/compiled.py --width 768 --layers 4 --activation geglu

Compiled are the functions that work number by number or row by row: the activation and its gradient, as
`training.compile` does, and residual with norm. Their number of tokens is marked as one that changes. Both
sides are one model, take turns in this process and see the same batches. Nothing is written, so
`benchmarks/run.py` does not take this for a benchmark.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch._dynamo.utils import counters
from training import memory
from training.cases import Case
from training.models import our_loss, our_model
from training.text import packed_step

from xlm.config.model import ModelConfig
from xlm.model.block import Block, LayerInput
from xlm.model.compiled import activation_gradient, for_any_tokens
from xlm.model.feed_forward import FeedForward, Operations, activated

MIB = 1024 * 1024
HEADS = {256: 4, 768: 12}
CHANGING_TOKENS = range(16, 136, 4)  # 30 numbers of tokens, which show whether another number compiles anew


def normalised_sum(hidden: Tensor, branch: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """Return the layer norm of a residual sum, [T, width]."""
    return F.layer_norm(hidden + branch, hidden.shape[-1:], weight, bias, epsilon)


class CompiledOperations:
    """The model's small operations, compiled once, and a way to put them in their places and take them out again."""

    def __init__(self, model: nn.Module) -> None:
        self.activations = Operations(for_any_tokens(activated), for_any_tokens(activation_gradient))
        self.normalised_sum = for_any_tokens(normalised_sum)
        self.parts = [part for part in model.modules() if isinstance(part, FeedForward)]

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Compute with the compiled functions."""
        with ExitStack() as stack:
            for part in self.parts:
                stack.enter_context(patch.object(part, "operations", self.activations))
            stack.enter_context(patch.object(Block, "forward", self._block))
            yield

    @property
    def _block(self) -> Callable[[Block, Tensor, LayerInput], Tensor]:
        normalised = self.normalised_sum

        def forward(block: Block, hidden: Tensor, layer: LayerInput) -> Tensor:
            rows = hidden if layer.needed is None else hidden.index_select(0, layer.needed)
            first, second = block.attention_norm, block.feed_forward_norm
            hidden = normalised(rows, block.attention(hidden, layer), first.weight, first.bias, first.eps)
            return normalised(hidden, block.feed_forward(hidden), second.weight, second.bias, second.eps)

        return forward


@dataclass(frozen=True)
class GatedCase(Case):
    """The same shape with a gated activation and about as many parameters."""

    def model_config(self) -> ModelConfig:
        """Return the sizes with GeGLU."""
        return super().model_config().model_copy(update={"activation": "geglu", "feed_forward": 8 * self.width // 3})


class Turns:
    """A model in training whose steps are taken as it is or, inside `small_operations_compiled`, compiled."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.model = our_model(case).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=case.learning_rate, fused=True)

    def gradients(self, batch: Any) -> tuple[float, list[Tensor]]:  # noqa: ANN401
        """Return loss and gradients of a batch; gradients are let go."""
        loss = our_loss(self.case, self.model, batch, len(batch.labels))
        loss.backward()
        found = [each.grad.clone() for each in self.model.parameters() if each.grad is not None]
        self.optimizer.zero_grad(set_to_none=True)
        return float(loss.detach()), found

    def step(self, batch: Any) -> tuple[float, float, float]:  # noqa: ANN401
        """Take an optimizer step; return its wall and processor seconds, and MiB above what was resident before it."""
        memory.release_free_memory()
        memory.reset_peak()
        before = memory.resident_bytes()
        wall, processor = time.perf_counter(), time.process_time()
        our_loss(self.case, self.model, batch, len(batch.labels)).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - wall, time.process_time() - processor, (memory.peak_bytes() - before) / MIB


def graphs() -> int:
    """Return how many graphs have been compiled so far."""
    return counters["stats"]["unique_graphs"]


def report() -> None:
    """Print what the first step costs, whether others compile anew, how far results are apart, and the turns."""
    parser = argparse.ArgumentParser(description="A training step with compiled small operations, and without.")
    parser.add_argument("--width", type=int, default=256, choices=sorted(HEADS))
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--activation", default="gelu", choices=["gelu", "geglu"])
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    kind = GatedCase if options.activation == "geglu" else Case
    case = kind(
        options.width, options.layers, HEADS[options.width], "monolingual", "fp32", options.tokens // 256, options.rounds,
        vocabulary=options.vocabulary, step_tokens=options.tokens,
    )  # fmt: skip
    turns, (batch,) = Turns(case), packed_step(case, 0)
    operations = CompiledOperations(turns.model)
    sides: dict[str, Callable[[], Any]] = {"as it is": nullcontext, "compiled": operations.in_place}
    for name, side in sides.items():
        with side():
            print(f"first step {name}: {turns.step(batch)[0]:.1f} s")
    compare(turns, operations, batch)
    seen = {name: [] for name in sides}
    for _ in range(options.rounds):
        for name, side in sides.items():
            with side():
                seen[name].append(turns.step(batch))
    for name, steps in seen.items():
        wall, processor, beyond = (median(column) for column in zip(*steps, strict=True))
        spread = f"{min(step[1] for step in steps):.3f} to {max(step[1] for step in steps):.3f}"
        print(f"{name}: processor {processor:.3f} s a step ({spread}), wall {wall:.3f} s, memory {beyond:.0f} MiB above what stays")
    ratios = sorted(after[1] / before[1] for before, after in zip(*seen.values(), strict=True))
    print(f"processor time, compiled / as it is, turn by turn: median {median(ratios):.3f}, {ratios[0]:.3f} to {ratios[-1]:.3f}")


def compare(turns: Turns, operations: CompiledOperations, batch: Any) -> None:  # noqa: ANN401
    """Print how far losses and gradients are apart, and how many graphs other numbers of tokens compiled."""
    loss, gradients = turns.gradients(batch)
    before = graphs()
    with operations.in_place():
        other_loss, other_gradients = turns.gradients(batch)
        for tokens in CHANGING_TOKENS:
            (other,) = packed_step(replace(turns.case, rows=1, row_tokens=tokens, step_tokens=tokens), 1)
            turns.gradients(other)
    apart = max(float((one - two).abs().max() / one.abs().max()) for one, two in zip(gradients, other_gradients, strict=True))
    print(f"loss apart by {abs(loss - other_loss):.1e}, gradients by {apart:.1e} of the largest number of their tensor")
    print(f"graphs: {before}, and {graphs() - before} more for {len(CHANGING_TOKENS)} other numbers of tokens")


if __name__ == "__main__":
    report()
