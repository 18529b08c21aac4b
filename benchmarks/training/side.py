"""One side of the comparison in a process of its own: it does what the parent asks, one JSON line after another.

A fresh interpreter gives each side memory that nobody else has used. Requests come on standard input, answers go to
standard output; whatever libraries print goes to standard error. While the parent asks the other side, this one sleeps.

    {"do": "load"}                          build model and optimizer
    {"do": "prepare", "step": 3}            make the micro-batches of a step; untimed, on both sides
    {"do": "part", "index": 0}              forward and backward of a micro-batch
    {"do": "update"}                        optimizer step; gradients are let go
    {"do": "settle"}                        remember what is resident between steps
    {"do": "evaluate", "step": -1}          loss of a step's micro-batches, without gradients
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TextIO

import torch
from torch import Tensor, nn
from training import memory
from training.cases import Case
from training.models import our_loss, our_model, their_loss, their_model
from training.text import packed_step, padded_step

from xlm.model.flops import training_flops
from xlm.runs.allocator import return_large_blocks

Answer = dict[str, Any]


class Side:
    """A model in training: "ours" or "peer"."""

    def __init__(self, name: str, case: Case) -> None:
        self.name, self.case = name, case
        self.model: nn.Module = nn.Module()
        self.optimizer: torch.optim.Optimizer | None = None
        self.batches: list[Any] = []
        self.predictions = 0
        self.loss = 0.0
        self.settled_bytes = 0

    def load(self) -> Answer:
        """Build the model with the case's initial weights, and its optimizer."""
        build: Callable[[Case], nn.Module] = our_model if self.name == "ours" else their_model
        if self.name == "ours":
            return_large_blocks()  # as pipelines/pretrain.py does
        self.model = build(self.case).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.case.learning_rate, fused=True)
        return {"parameters": sum(parameter.numel() for parameter in self.model.parameters())}

    def prepare(self, step: int, tokens: int | None = None) -> Answer:
        """Make the micro-batches of a step, or of its first texts that have ``tokens`` together."""
        self.batches = self._micro_batches(step, tokens or self.case.step_tokens)
        self.predictions = sum(_predictions(batch) for batch in self.batches)
        self.loss = 0.0
        memory.reset_peak()
        return {
            "parts": len(self.batches),
            "tokens": sum(batch.tokens for batch in self.batches),
            "positions": sum(batch.input_ids.numel() for batch in self.batches),
            "predictions": self.predictions,
        } | self._flops()

    def part(self, index: int) -> Answer:
        """Run forward and backward of one micro-batch; gradients add up."""
        timer = _Timer()
        loss = self._loss(self.batches[index])
        loss.backward()
        self.loss += float(loss.detach())
        return timer.read()

    def update(self) -> Answer:
        """Take the optimizer step and let gradients go, as both trainers do."""
        assert self.optimizer is not None
        gradient_bytes = sum(each.grad.nbytes for each in self.model.parameters() if each.grad is not None)
        timer = _Timer()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        answer = timer.read()
        peak = memory.peak_bytes()
        return answer | {
            "loss": self.loss,
            "peak_bytes": peak,
            "settled_bytes": self.settled_bytes,
            "gradient_bytes": gradient_bytes,
            "beyond_bytes": peak - self.settled_bytes - gradient_bytes,
            "state_bytes": self._state_bytes(),
        }

    def settle(self) -> Answer:
        """Give free memory back and remember what is resident between steps."""
        memory.release_free_memory()
        self.settled_bytes = memory.resident_bytes()
        return {"settled_bytes": self.settled_bytes}

    @torch.no_grad()
    def evaluate(self, step: int) -> Answer:
        """Return the mean loss over a step that was not trained on."""
        self.prepare(step)
        return {"loss": sum(float(self._loss(batch)) for batch in self.batches)}

    def _micro_batches(self, step: int, tokens: int) -> list[Any]:
        case = replace(self.case, step_tokens=tokens)
        return [*packed_step(case, step)] if self.name == "ours" else [*padded_step(case, step)]

    def _loss(self, batch: Any) -> Tensor:  # noqa: ANN401
        loss_of: Callable[..., Tensor] = our_loss if self.name == "ours" else their_loss
        return loss_of(self.case, self.model, batch, self.predictions)

    def _flops(self) -> dict[str, float]:
        """Count the step's operations from its real tokens, so that both sides are held against the same."""
        config, lengths = self.case.model_config(), [length for batch in self.batches for length in _lengths(batch)]
        counts = {"flops": True, "needed_flops": False}
        return {
            name: float(training_flops(config, self.case.vocabulary, lengths, self.predictions, last_layer_whole=whole))
            for name, whole in counts.items()
        }

    def _state_bytes(self) -> int:
        assert self.optimizer is not None
        state = [value for each in self.optimizer.state.values() for value in each.values() if isinstance(value, Tensor)]
        return sum(value.nbytes for value in [*self.model.parameters(), *state])


class _Timer:
    def __init__(self) -> None:
        self._wall, self._processor = time.perf_counter(), time.process_time()

    def read(self) -> Answer:
        """Return wall and processor seconds since the start."""
        return {"seconds": time.perf_counter() - self._wall, "cpu_seconds": time.process_time() - self._processor}


def _predictions(batch: Any) -> int:  # noqa: ANN401
    predictions = getattr(batch, "predictions", None)
    return len(batch.labels) if predictions is None else predictions


def _lengths(batch: Any) -> list[int]:  # noqa: ANN401
    mask = getattr(batch, "attention_mask", None)
    lengths: list[int] = (batch.cu_seqlens.diff() if mask is None else mask.sum(1)).tolist()
    return lengths


def serve(side: Side, requests: TextIO, answers: TextIO) -> None:
    """Answer requests until there are no more."""
    for line in requests:
        request = json.loads(line)
        answers.write(json.dumps(getattr(side, request.pop("do"))(**request)) + "\n")
        answers.flush()


if __name__ == "__main__":
    # Answers keep the real standard output; what anybody else writes there must not come between them.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(Side(sys.argv[1], Case.from_json(sys.argv[2])), sys.stdin, answers)
