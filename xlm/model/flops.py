"""How many floating-point operations a training step takes, to hold its speed against a machine's.

Counted are the products of matrices, a multiplication and an addition being two operations; what an implementation pads
or computes again is not counted, nor is anything elementwise. A map from a to b numbers costs 2 a b a token forward and
twice that backward (the gradients of its input and of its weights): the 6 N of Kaplan et al. 2020, "Scaling Laws for
Neural Language Models", section 2.1.
"""

from __future__ import annotations

from collections.abc import Iterable

from xlm.config.model import ModelConfig

FORWARD_AND_BACKWARD = 6


def training_flops(
    config: ModelConfig, vocabulary_size: int, sequence_lengths: Iterable[int], predictions: int, *, last_layer_whole: bool = True
) -> int:
    """Return the operations of forward and backward of the language-model loss over packed sequences.

    With T tokens in sequences of L, P predicted positions, width d, embedding width e (d, unless factorised),
    feed-forward width f, g = 3 for GeGLU and 2 else, and V pieces:

        6 [ layers (T (4 d^2 + g d f) + 2 d pairs) + T e d (factorised only) + P (d e (where the head transforms) + e V) ]

    ``pairs`` are the (query, key) pairs of a layer, sum(L^2) where it sees everything; causal sequences count as if they
    saw everything, too. Embeddings are looked up and cost nothing.

    The states of the last layer are read at the predicted positions only. ``last_layer_whole`` False leaves out what it
    would compute behind its attention for the others, ``6 (T - P) (d^2 + g d f)``; True, the common count, does not.
    """
    lengths = list(sequence_lengths)
    tokens, width, embedding = sum(lengths), config.width, config.embedding_size
    gates = 3 if config.activation == "geglu" else 2
    behind_attention = width * width + gates * width * config.feed_forward
    total = config.layers * tokens * (3 * width * width + behind_attention)
    total += sum(2 * width * attention_pairs(length, config.reach(layer)) for layer in range(config.layers) for length in lengths)
    if embedding != width:
        total += tokens * embedding * width
    total += predictions * embedding * (vocabulary_size + (width if config.head_transform else 0))
    if not last_layer_whole:
        total -= (tokens - predictions) * behind_attention
    return FORWARD_AND_BACKWARD * total


def attention_pairs(length: int, reach: int | None) -> int:
    """Return how many (query, key) pairs a sequence has where a token sees ``reach`` tokens to each side, None: all."""
    if reach is None or reach >= length:
        return length * length
    return length + reach * (2 * length - reach - 1)
