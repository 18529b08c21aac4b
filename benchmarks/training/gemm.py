"""The matrix products that this machine manages at best, to hold a whole step against."""

from __future__ import annotations

import time

import torch
from training.cases import MASK_RATE, Case

SQUARE = 2048
# Columns of the vocabulary projection that are multiplied at once here: enough for full speed, little memory.
VOCABULARY_COLUMNS = 16_384
REPEATS = 4


def shapes(case: Case) -> dict[str, tuple[int, int, int]]:
    """Return (rows, inner, columns) of a large square product and of the products that a step consists of."""
    tokens, width = case.micro_batch_tokens, case.width
    predicted = round(tokens * MASK_RATE)
    return {
        "square": (SQUARE, SQUARE, SQUARE),
        "qkv": (tokens, width, 3 * width),
        "feed_forward_in": (tokens, width, 4 * width),
        "feed_forward_out": (tokens, 4 * width, width),
        "feed_forward_weights": (4 * width, tokens, width),
        "vocabulary": (predicted, width, min(case.vocabulary, VOCABULARY_COLUMNS)),
    }


def peaks(case: Case) -> dict[str, float]:
    """Return the best FLOP/s of a few products of each shape, in the case's precision."""
    dtype = case.autocast_dtype or torch.float32
    found = {}
    for name, (rows, inner, columns) in shapes(case).items():
        left, right = torch.randn(rows, inner, dtype=dtype), torch.randn(inner, columns, dtype=dtype)
        out = torch.empty(rows, columns, dtype=dtype)
        seconds = []
        for _ in range(REPEATS):
            started = time.perf_counter()
            torch.mm(left, right, out=out)
            seconds.append(time.perf_counter() - started)
        found[name] = 2.0 * rows * inner * columns / min(seconds)
    return found
