"""First values: distribution, keys, independence of everything else."""

import torch
from torch import nn

from xlm.config.model import ModelConfig
from xlm.model.encoder import Encoder
from xlm.model.initialisation import initialise_parameters

CONFIG = ModelConfig(width=64, layers=2, heads=2, feed_forward=128, max_positions=32, token_types=1)


def values(seed, **changes):
    config = CONFIG.model_copy(update=changes)
    encoder = Encoder(config, 500, 0)
    initialise_parameters(encoder, config, seed)
    return dict(encoder.named_parameters())


def test_matrices_are_normal_biases_zero_and_norms_one():
    for name, parameter in values(3).items():
        if name.endswith("bias"):
            assert not parameter.any(), name
        elif "norm" in name:
            assert bool((parameter == 1).all()), name
        elif parameter.numel() > 1000:
            assert abs(float(parameter.detach().std()) - 0.02) < 0.001, name
            assert abs(float(parameter.detach().mean())) < 0.002, name


def test_seed_and_name_decide_and_global_state_does_not():
    torch.manual_seed(1)
    first = values(3)
    torch.manual_seed(2)
    second, other = values(3), values(4)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["embeddings.tokens.weight"], other["embeddings.tokens.weight"])
    blocks = [first[f"blocks.{number}.attention.qkv.weight"] for number in (0, 1)]
    assert not torch.equal(*blocks)


def test_residual_outputs_can_be_scaled():
    plain, scaled = values(3), values(3, residual_initial_scale=0.5)
    for name in plain:
        factor = 0.5 if name.endswith(("attention.output.weight", "feed_forward.output.weight")) else 1.0
        torch.testing.assert_close(scaled[name], plain[name] * factor)


def test_low_precision_parameters_get_the_rounded_values():
    double, half = nn.Linear(8, 8), nn.Linear(8, 8).to(torch.bfloat16)
    initialise_parameters(double, CONFIG, 5)
    initialise_parameters(half, CONFIG, 5)
    assert torch.equal(double.weight.to(torch.bfloat16), half.weight)
