"""First values of the parameters, each keyed by its name.

BERT's scheme (Devlin et al. 2019): matrices and embeddings normal with mean 0 and a fixed deviation,
biases 0, norms 1. A key per name makes the values the same on every rank and independent of the order
in which modules were built; modules are therefore built without values, and without touching the global
random state. `ModelConfig.residual_initial_scale` shrinks the outputs of residual branches (GPT-2 divides by
sqrt(2 * layers), Radford et al. 2019).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils import skip_init

from xlm.config.model import ModelConfig
from xlm.seeding import key_int64

_RESIDUAL_OUTPUTS = ("attention.output.weight", "feed_forward.output.weight")


def unfilled_linear(inputs: int, outputs: int) -> nn.Linear:
    """Build a linear map whose values are left to `initialise_parameters`."""
    return skip_init(nn.Linear, inputs, outputs)  # type: ignore[no-untyped-call,no-any-return]


def unfilled_embedding(rows: int, width: int) -> nn.Embedding:
    """Build an embedding table whose values are left to `initialise_parameters`."""
    return skip_init(nn.Embedding, rows, width)  # type: ignore[no-untyped-call,no-any-return]


def initialise_parameters(module: nn.Module, config: ModelConfig, seed: int, *, prefix: str = "") -> None:
    """Fill every parameter of ``module`` in place; the values depend on ``prefix`` + name, ``seed`` and ``config`` only."""
    norms = {id(parameter) for part in module.modules() if isinstance(part, nn.LayerNorm) for parameter in part.parameters()}
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
            elif id(parameter) in norms:
                parameter.fill_(1.0)
            else:
                generator = torch.Generator().manual_seed(key_int64("initialise", seed, prefix + name))
                deviation = config.initializer_range * (config.residual_initial_scale if name.endswith(_RESIDUAL_OUTPUTS) else 1.0)
                values = torch.empty(parameter.shape, dtype=torch.float32, device="cpu").normal_(0.0, deviation, generator=generator)
                parameter.copy_(values)
