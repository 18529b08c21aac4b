"""Which parameters decay, and how fast each learns: the groups that the optimizer is given."""

from __future__ import annotations

from typing import Any

from torch import nn

from xlm.config.training import OptimizerSection
from xlm.model.pretraining import PretrainingModel
from xlm.model.width_scaling import WidthScaling


def parameter_groups(model: PretrainingModel, optimizer: OptimizerSection) -> list[dict[str, Any]]:
    """Split parameters by weight decay and learning rate scale; groups that would be empty are left out.

    No decay on norms, biases (BERT, Devlin et al. 2019) and the tables of positions, token types and languages; the token
    table has its own learning rate scale; hidden matrices learn and decay, and Adam's epsilon is, as `WidthScaling` says.
    """
    embeddings = model.encoder.embeddings
    small_tables = [table.weight for table in (embeddings.positions, embeddings.token_types, embeddings.languages) if table is not None]
    scaling = WidthScaling.of(model.config)
    groups: dict[tuple[str, float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        scale = scaling.learning_rate_scale(name)
        if parameter is embeddings.tokens.weight:
            kind, scale = "token_embeddings", scale * optimizer.token_embedding_learning_rate_scale
        elif parameter.ndim < 2 or any(parameter is table for table in small_tables):
            kind = "not_decayed"
        else:
            kind = "decayed"
        decay = 0.0 if kind == "not_decayed" else optimizer.weight_decay * scaling.weight_decay_scale(name)
        groups.setdefault((kind, scale, decay), []).append(parameter)
    return [
        {
            "params": parameters,
            "name": kind,
            "weight_decay": decay,
            "lr_scale": scale,
            "eps": optimizer.epsilon * scaling.epsilon_scale,
        }
        for (kind, scale, decay), parameters in sorted(groups.items(), key=lambda group: group[0])
    ]
