"""First values of the parameters, each keyed by its name.

Matrices and embeddings are normal with mean 0 and a fixed deviation (RoBERTa, XLM), cut off at two deviations where
the published model was (BERT, ALBERT, ELECTRA, ModernBERT: ``truncated_normal``); biases 0, norms 1. A key per name
makes the values the same on every rank and independent of the order in which modules were built; modules are
therefore built without values, and without touching the global random state.
`ModelConfig.residual_initial_scale` shrinks the outputs of residual branches (GPT-2 divides by sqrt(2 * layers),
Radford et al. 2019); `xlm.model.width_scaling` follows the width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from xlm.config.model import ModelConfig
from xlm.model.width_scaling import WidthScaling
from xlm.seeding import key_int64

_RESIDUAL_OUTPUTS = ("attention.output.weight", "feed_forward.output.weight")


def unfilled_linear(inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
    """Build a linear map whose values are left to `initialise_parameters`."""
    return skip_init(nn.Linear, inputs, outputs, bias=bias)  # type: ignore[no-untyped-call,no-any-return]


def unfilled_embedding(rows: int, width: int) -> nn.Embedding:
    """Build an embedding table whose values are left to `initialise_parameters`."""
    return skip_init(nn.Embedding, rows, width)  # type: ignore[no-untyped-call,no-any-return]


def norm_layer(config: ModelConfig, width: int) -> nn.LayerNorm:
    """Build a layer norm of the configuration's kind."""
    return nn.LayerNorm(width, eps=config.norm_epsilon, bias=config.biases)


def initialise_parameters(module: nn.Module, config: ModelConfig, seed: int, *, prefix: str = "") -> None:
    """Fill every parameter of ``module`` in place; the values depend on ``prefix`` + name, ``seed`` and ``config`` only."""
    norms = {id(parameter) for part in module.modules() if isinstance(part, nn.LayerNorm) for parameter in part.parameters()}
    embeddings = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    scaling = WidthScaling.of(config)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
            elif id(parameter) in norms:
                parameter.fill_(1.0)
            else:
                deviation = config.initializer_range * scaling.initial_scale(prefix + name)
                if id(parameter) in embeddings and config.embedding_initializer_range is not None:
                    deviation = config.embedding_initializer_range
                elif name.endswith(_RESIDUAL_OUTPUTS):
                    deviation *= config.residual_initial_scale
                generator = torch.Generator().manual_seed(key_int64("initialise", seed, prefix + name))
                parameter.copy_(_drawn(parameter.shape, config.initialisation, deviation, generator))


def _drawn(shape: torch.Size, kind: str, deviation: float, generator: torch.Generator) -> Tensor:
    values = torch.empty(shape, dtype=torch.float32, device="cpu")
    if kind == "truncated_normal":
        return nn.init.trunc_normal_(values, 0.0, deviation, -2 * deviation, 2 * deviation, generator=generator)
    return values.normal_(0.0, deviation, generator=generator)
