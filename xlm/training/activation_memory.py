"""How many bytes of a micro-batch are kept from its forward pass to its backward pass, as the layers here keep them.

For a token of a layer with width d and feed-forward width f (2 f where it is gated), in numbers:

    d  the layer's input, which the projection reads          d  before the first norm
    3d queries, keys and values                               d  the first norm's output, which the feed-forward part reads
    d  what attention gives, read by its output projection    f  before the activation (made again behind it; `feed_forward.py`)
    h L  attention weights of sequences up to a head's width  d  before the second norm

and 2 d of masks where something is dropped. The last layer keeps what lies behind its attention for predicted tokens alone.
A layer that is computed again keeps its input alone (Chen et al. 2016).
"""

from __future__ import annotations

from dataclasses import dataclass

from xlm.config.model import ModelConfig
from xlm.model.vocabulary_memory import CHUNK_LOGITS, predictions_beside

FP32 = 4


@dataclass(frozen=True)
class MicroBatch:
    """What a rank works on at a time."""

    tokens: int
    sequence_length: int
    predictions: int
    number: int = 1  # of them in a step, of each rank


@dataclass(frozen=True)
class ActivationMemory:
    """Bytes at the two moments that need most of a micro-batch: the loss, and the start of the way back through the layers."""

    kept: int
    at_loss: int  # beside what is kept
    in_backward: int  # beside what is kept, the last layer let go


def activation_memory(config: ModelConfig, vocabulary: int, batch: MicroBatch, number_bytes: int, *, recomputes: bool) -> ActivationMemory:
    """Return what one micro-batch needs beside weights and gradients; ``number_bytes`` is that of the computing precision."""
    width, inner = config.width, config.feed_forward * (2 if config.activation == "geglu" else 1)
    dropped = 2 * width if config.dropout else 0
    before = 5 * width + (0 if config.dropout or config.attention_dropout else _weights(config, batch.sequence_length))
    behind = 3 * width + inner + dropped
    whole = batch.tokens * (before + behind)
    last = batch.tokens * before + batch.predictions * behind
    embedded = batch.tokens * config.embedding_size * (1 + bool(config.has_embedding_norm) + bool(config.dropout))
    head = batch.predictions * config.embedding_size * 4
    layers = config.layers * batch.tokens * width if recomputes else (config.layers - 1) * whole + last
    # The gradients of the numbers before and behind the activation, and the activation made again.
    way_back = batch.tokens * (inner + 2 * config.feed_forward + width) + (whole if recomputes else 0)
    at_loss = (
        batch.predictions * config.embedding_size * (2 * FP32) + CHUNK_LOGITS * FP32 + _beside(config, vocabulary, batch, number_bytes)
    )
    kept = number_bytes * (embedded + layers + head)
    return ActivationMemory(kept, at_loss, number_bytes * way_back - (0 if recomputes else number_bytes * (last + head)))


def _weights(config: ModelConfig, length: int) -> int:
    return config.heads * length if length <= config.width // config.heads else 0


def _beside(config: ModelConfig, vocabulary: int, batch: MicroBatch, number_bytes: int) -> int:
    """Return the bytes of exponentials that do not fit into the table's gradient; see `vocabulary_memory`."""
    lent = config.embedding_size * number_bytes // FP32
    return min(max(batch.predictions - lent, 0), predictions_beside(vocabulary)) * vocabulary * FP32
