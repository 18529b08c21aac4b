"""Where the exponentials of a block of predictions lie between the two visits to the vocabulary.

The gradient of the table has to exist anyway and is written last, so it lends its memory: room for as many
predictions as a row is wide. What does not fit lies beside it.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

# Exponentials beside the gradient (128 MiB in fp32), but not so few predictions that products run at half their speed.
BESIDE = 1 << 25
MIN_BESIDE = 128
# Fewer predictions at a time than this, and products run well below their speed.
MIN_WITHOUT_LENDER = 256
# Logits a chunk holds: few enough to stay in a processor's cache; a GPU wants more work at a time.
CHUNK_LOGITS = 1 << 21
GPU_CHUNK_LOGITS = 1 << 24
MIN_CHUNK_PIECES = 256


def predictions_beside(vocabulary: int) -> int:
    """Return for how many predictions exponentials may lie outside of the gradient."""
    return max(MIN_BESIDE, BESIDE // max(vocabulary, 1))


def predictions_without_lender(width: int, predictions: int) -> int:
    """Return for how many of them exponentials may lie beside a gradient that lends nothing: half of its size in fp32, and never all.

    Two halves of 307 predictions cost 1 % more time than one block (benchmarks/NOTES.md).
    """
    return min(width // 2, -(-predictions // 2))


def worth_standing(width: int) -> bool:
    """Whether adding to a gradient that stands already saves memory without more and smaller products."""
    return width // 2 >= MIN_WITHOUT_LENDER


def cut_predictions(predictions: int, first: int, further: int) -> list[slice]:
    """Cut the predictions into one block of at most ``first`` and equal ones of at most ``further``."""
    start = min(first, predictions)
    left = predictions - start
    count = -(-left // further)
    edges = [0, *(start + left * number // count for number in range(count)), predictions]
    return [slice(begin, end) for begin, end in pairwise(edges) if end > begin]


def cut_vocabulary(vocabulary: int, predictions: int, device: torch.device) -> list[slice]:
    """Cut the vocabulary into chunks of which ``predictions`` logits are a good piece of work."""
    wanted = CHUNK_LOGITS if device.type == "cpu" else GPU_CHUNK_LOGITS
    size = max(MIN_CHUNK_PIECES, wanted // max(predictions, 1))
    return [slice(start, min(start + size, vocabulary)) for start in range(0, vocabulary, size)]


def exponentials(predictions: int, chunks: list[slice], gradient: Tensor | None, like: Tensor) -> list[Tensor]:
    """Return memory [predictions, pieces] for each chunk, of the type and on the device of ``like``.

    Rows of ``gradient`` [V, d] may be written from the last chunk to the first, each chunk once it has been read: the
    exponentials fill the gradient from its end, and those of a chunk never lie behind the rows of its pieces.
    """
    vocabulary = chunks[-1].stop
    if gradient is None:
        own, own_size, stride = like.new_empty(0), 0, predictions
    else:
        own = gradient.view(-1).view(like.dtype)
        own_size = own.numel()
        stride = max(predictions, own_size // vocabulary)
    starts = [own_size - stride * (vocabulary - chunk.start) for chunk in chunks]
    sizes = [predictions * (chunk.stop - chunk.start) for chunk in chunks]
    beside = like.new_empty(sum(size for start, size in zip(starts, sizes, strict=True) if start < 0))
    places: list[Tensor] = []
    used = 0
    for start, size in zip(starts, sizes, strict=True):
        memory = own[start : start + size] if start >= 0 else beside[used : used + size]
        used += size if start < 0 else 0
        places.append(memory.view(predictions, -1))
    return places
