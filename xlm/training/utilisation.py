"""Model FLOPs utilisation (MFU, PaLM: Chowdhery et al. 2022, appendix B): what a step needs over what the devices could do.

The operations are those of `xlm.model.flops`, of the language-model loss alone: what a contrastive, sentence or
replaced-token head, activation checkpointing or padding cost is not counted, so that the figure errs low. Peaks are
the makers' dense ones by device name. A CPU has no such figure that is worth anything, so a matrix product is timed at
start-up, on all ranks at once, since they share the machine; there the figure says how far training is from its best products.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from xlm.batching.packed_batch import PackedBatch
from xlm.config.model import ModelConfig
from xlm.model.flops import FORWARD_AND_BACKWARD, attention_pairs, training_flops
from xlm.training.distributed import gather_numbers
from xlm.training.precision import Precision

# Part of the device's name: (16 bits, fp32 without TF32) in 1e12 operations a second. The first that fits counts.
_PEAKS: Sequence[tuple[str, float, float]] = (
    ("B200", 2250.0, 80.0),
    ("H200", 989.0, 67.0),
    ("H100 PCIe", 756.0, 51.0),
    ("H100 NVL", 835.0, 60.0),
    ("H100", 989.0, 67.0),
    ("A100", 312.0, 19.5),
    ("L40S", 362.0, 91.6),
    ("L4", 121.0, 30.3),
    ("A10", 125.0, 31.2),
    ("V100", 125.0, 15.7),
    ("T4", 65.0, 8.1),
    ("RTX 4090", 165.2, 82.6),
    ("RTX 3090", 71.0, 35.6),
)
# A product takes about a millisecond where the CPU has instructions for the type, so that on a busy machine some are not interrupted.
_PRODUCT, _TRIES = 512, 40
_MOST_S = 0.1
_UNIT = 1_000_000  # ranks tell each other whole megaflops, which stay far below 2^63


def peak_flops(device: torch.device, precision: Precision) -> float | None:
    """Return the operations a second that a device could do; None for a GPU that the table lacks."""
    if device.type == "cuda":
        return peak_by_name(torch.cuda.get_device_name(device), precision)
    return _measured(torch.bfloat16 if precision == "bf16" else torch.float32)


def peak_by_name(name: str, precision: Precision) -> float | None:
    """Return what the table says of a GPU."""
    for part, of_16_bits, of_32_bits in _PEAKS:
        if re.search(rf"\b{part}\b", name):  # "L4" is not "L40"
            return (of_32_bits if precision == "fp32" else of_16_bits) * 1e12
    return None


def _measured(dtype: torch.dtype) -> float:
    """Return the operations a second of the fastest of many products, in a tenth of a second and the time of two of them.

    Two alone take most of a second in bf16 on CPUs that have no instructions for it.
    """
    left, right = (torch.ones(_PRODUCT, _PRODUCT, dtype=dtype) for _ in range(2))
    torch.mm(left, right)  # kernels are chosen, threads start
    took: list[float] = []
    while len(took) < _TRIES and sum(took) < _MOST_S:
        began = time.perf_counter()
        torch.mm(left, right)
        took.append(time.perf_counter() - began)
    return 2.0 * _PRODUCT**3 / min(took)


@dataclass(frozen=True)
class Work:
    """Operations of all ranks over a stretch of steps, and what their devices could do in a second (None: not known)."""

    flops: int
    peak_flops: float | None


class Utilisation:
    """Counts the operations of this rank's micro-batches from line to line of the log; ranks join them when asked."""

    def __init__(self, config: ModelConfig, vocabulary_size: int, device: torch.device, precision: Precision) -> None:
        """Find the peak of all ranks together: each must do this at the same time."""
        # Operations are linear in tokens, predictions and pairs of attention, so that a micro-batch costs three sums.
        self._per_token = training_flops(config, vocabulary_size, [1], 0)
        self._per_prediction = training_flops(config, vocabulary_size, [], 1)
        self._layers_by_reach = Counter(config.reach(layer) for layer in range(config.layers))
        self._per_token -= FORWARD_AND_BACKWARD * 2 * config.width * config.layers  # the one pair of a sequence of one
        self._per_pair = FORWARD_AND_BACKWARD * 2 * config.width
        self._device = device
        peaks = gather_numbers([int((peak_flops(device, precision) or 0.0) / _UNIT)], device)
        # One unknown device, and the sum would say nothing.
        self._peak = sum(peak for (peak,) in peaks) * _UNIT if all(peak for (peak,) in peaks) else None
        self._flops = 0

    def add(self, micro_batches: Sequence[PackedBatch]) -> None:
        """Count the micro-batches of a step."""
        for batch in micro_batches:
            lengths = batch.cu_seqlens.diff().tolist()
            self._flops += self._per_token * batch.tokens + self._per_prediction * int(batch.predict_positions.numel())
            for reach, layers in self._layers_by_reach.items():
                self._flops += self._per_pair * layers * sum(attention_pairs(length, reach) for length in lengths)

    def take(self) -> Work:
        """Return the operations of all ranks since the last call; every rank must call it."""
        own, self._flops = self._flops // _UNIT, 0
        return Work(sum(flops for (flops,) in gather_numbers([own], self._device)) * _UNIT, self._peak)
