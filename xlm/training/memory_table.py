"""The memory of a rank as a table: one line a DeepSpeed file, in GiB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xlm.config.model import ModelConfig
from xlm.config.training import OptimizerSection
from xlm.training.activation_memory import MicroBatch, activation_memory
from xlm.training.memory_estimate import NUMBER_BYTES, MemoryEstimate, ModelSizes, estimate_memory
from xlm.training.precision import SUPPORTED, Precision

GIB = 1 << 30
COLUMNS = ("weights", "master", "optimizer", "gradients", "micro-batch", "buffers", "on the device", "offloaded")


@dataclass(frozen=True)
class Training:
    """What memory depends on beside the DeepSpeed file."""

    model: ModelConfig
    vocabulary: int
    languages: int
    optimizer: OptimizerSection
    precision: Precision
    ranks: int
    micro_batch: MicroBatch
    recomputes: bool

    def heading(self) -> str:
        """Say it in a line."""
        batch = self.micro_batch
        recomputed = ", activation checkpointing" if self.recomputes else ""
        return (
            f"GiB of each of {self.ranks} ranks in {self.precision}: {batch.number} micro-batches of {batch.tokens:,} tokens "
            f"in sequences of {batch.sequence_length:,}, {batch.predictions:,} predicted, {self.vocabulary:,} pieces{recomputed}"
        )


def memory_lines(training: Training, files: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the lines of a table; ``files`` are the ``zero_optimization`` sections by name. Cells that are not supported say so."""
    sizes = ModelSizes.of(training.model, training.vocabulary, training.languages, training.optimizer)
    needs = activation_memory(
        training.model, training.vocabulary, training.micro_batch, NUMBER_BYTES[training.precision], recomputes=training.recomputes
    )
    rows: list[tuple[str, ...]] = [("DeepSpeed file", *COLUMNS)]
    for name, zero in files.items():
        if int(zero.get("stage", 0)) not in SUPPORTED[training.precision]:
            rows.append((name, f"not in {training.precision}", *[""] * (len(COLUMNS) - 1)))
            continue
        found = estimate_memory(sizes, zero, training.precision, training.ranks, needs, training.micro_batch.number)
        rows.append((name, *(f"{value / GIB:.2f}" for value in cells(found))))
    return [f"{sizes.parameters:,} parameters; {training.heading()}", *_aligned(rows)]


def cells(found: MemoryEstimate) -> tuple[int, ...]:
    """Return the bytes of COLUMNS: what is on the device from step to step, then of the moment that needs most of it."""
    moment = max(found.moments.values(), key=lambda parts: sum(parts.values()))
    parts = {**found.held, **moment}
    weights = sum(value for name, value in found.held.items() if name.startswith("weights"))
    master, states = found.held.get("master weights", 0), found.held.get("optimizer states", 0)
    gradients = parts.get("gradients", 0)
    batch = sum(moment.get(name, 0) for name in ("activations", "token table's gradient", "vocabulary loss, backward"))
    buffers = moment.get("reduction", 0) + moment.get("step", 0)
    return weights, master, states, gradients, batch, buffers, found.device_bytes, sum(found.host.values())


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if not column else cell.rjust(width) for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
