"""Which parameters decay, how fast each learns, and which are matrices for Muon: the groups that the optimizer is given."""

from __future__ import annotations

from typing import Any

from torch import nn

from xlm.config.model import ModelConfig
from xlm.config.training import OptimizerSection
from xlm.model.pretraining import PretrainingModel
from xlm.model.width_scaling import WidthScaling

# Matrices between hidden states, by the ends of their names; heads and tables are none (Jordan et al. 2024).
_HIDDEN = ("attention.output.weight", "feed_forward.output.weight")


def parameter_groups(model: PretrainingModel, optimizer: OptimizerSection) -> list[dict[str, Any]]:
    """Split parameters by weight decay, learning rate scale and, for Muon, blocks of rows; groups that would be empty are left out.

    No decay on norms, biases (BERT, Devlin et al. 2019) and the tables of positions, token types and languages, nor LAMB's
    adaptation (``adapted``); the token table has its own learning rate scale; hidden matrices learn and decay, and Adam's
    epsilon is, as `WidthScaling` says.
    """
    embeddings = model.encoder.embeddings
    small_tables = [table.weight for table in (embeddings.positions, embeddings.token_types, embeddings.languages) if table is not None]
    scaling = WidthScaling.of(model.config)
    groups: dict[tuple[str, float, float, int], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        scale = scaling.learning_rate_scale(name)
        if parameter is embeddings.tokens.weight:
            kind, scale = "token_embeddings", scale * optimizer.token_embedding_learning_rate_scale
        elif parameter.ndim < 2 or any(parameter is table for table in small_tables):
            kind = "not_decayed"
        else:
            kind = "decayed"
        decay = 0.0 if kind == "not_decayed" else optimizer.weight_decay * scaling.weight_decay_scale(name)
        blocks = hidden_blocks(name, model.config) if optimizer.kind == "muon" else 0
        groups.setdefault((kind, scale, decay, blocks), []).append(parameter)
    return [
        {
            "params": parameters,
            "name": kind,
            "weight_decay": decay,
            "lr_scale": scale,
            "eps": optimizer.epsilon * scaling.epsilon_scale,
            "adapted": kind != "not_decayed",
            "blocks": blocks,
        }
        for (kind, scale, decay, blocks), parameters in sorted(groups.items(), key=lambda group: group[0])
    ]


def hidden_blocks(name: str, config: ModelConfig) -> int:
    """Return how many matrices between hidden states a parameter holds, one above the other; 0 for one that is none."""
    if name.endswith("attention.qkv.weight"):
        return 3
    if name.endswith("feed_forward.inner.weight"):
        return 2 if config.activation == "geglu" else 1
    return int(name.endswith(_HIDDEN))
