"""First values: distribution, keys, independence of everything else."""

import pytest
import torch
from scipy import stats
from torch import nn

from xlm.config.model import ModelConfig
from xlm.model.initialisation import initialise_parameters
from xlm.model.pretraining import PretrainingModel

CONFIG = ModelConfig(width=64, layers=2, heads=2, feed_forward=128, max_positions=32, token_types=1, language_model_head=True)
GENERATOR = {"width": 32, "layers": 1, "heads": 2, "feed_forward": 64}


def values(seed, **changes):
    model = PretrainingModel(ModelConfig(**{**CONFIG.model_dump(), **changes}), 500, 0)
    model.initialise(seed)
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def test_matrices_are_normal_biases_zero_and_norms_one():
    found = values(3, norm_position="post")
    for name, parameter in found.items():
        if name.endswith("bias"):
            assert not parameter.any(), name
        elif "norm" in name:
            assert bool((parameter == 1).all()), name
        else:
            # Kolmogorov and Smirnov's test of the whole distribution, not of its deviation alone.
            assert stats.kstest(parameter.flatten().double().numpy(), "norm", args=(0.0, 0.02)).pvalue > 1e-4, name
    assert len(found) == 34


def test_truncated_values_end_at_two_deviations_of_what_was_cut():
    found = values(3, initialisation="truncated_normal", initializer_range=0.05)
    for name in ("encoder.embeddings.tokens.weight", "encoder.blocks.1.feed_forward.inner.weight", "lm_head.dense.weight"):
        numbers = found[name].flatten().double().numpy()
        assert abs(numbers).max() <= 0.1
        assert abs(numbers).max() > 0.099
        assert stats.kstest(numbers, stats.truncnorm(-2, 2, scale=0.05).cdf).pvalue > 1e-4, name
        assert numbers.std() == pytest.approx(0.05 * stats.truncnorm(-2, 2).std(), rel=0.02)


def test_seed_and_name_decide_and_global_state_does_not():
    torch.manual_seed(1)
    first = values(3)
    torch.manual_seed(2)
    second, other = values(3), values(4)
    assert all(torch.equal(first[name], second[name]) for name in first)
    for name, parameter in first.items():
        assert parameter.dim() == 1 or not torch.equal(parameter, other[name]), name
    matrices = [parameter.flatten()[:1000] for parameter in first.values() if parameter.numel() > 1000]
    assert len({tuple(matrix.tolist()) for matrix in matrices}) == len(matrices), "no two parameters start alike"


def test_what_else_a_model_has_does_not_decide():
    plain = values(3)
    more = values(3, layers=4, sentence_head=True, discriminator_head=True, generator=GENERATOR, token_types=2)
    same = [name for name in plain if "token_types" not in name]
    assert all(torch.equal(plain[name], more[name]) for name in same)
    assert not torch.equal(more["generator.layers.blocks.0.attention.qkv.weight"], more["encoder.blocks.0.attention.qkv.weight"][:96, :32])


def test_the_order_of_building_does_not_decide():
    first, second = nn.Module(), nn.Module()
    for module, order in ((first, "ab"), (second, "ba")):
        for name in order:
            module.add_module(name, nn.Linear(8, 8))
        initialise_parameters(module, CONFIG, 5)
    assert torch.equal(first.a.weight, second.a.weight)
    assert not torch.equal(first.a.weight, first.b.weight)


def test_residual_outputs_and_embeddings_have_scales_of_their_own():
    plain = values(3)
    for changes, ends, factor in (
        ({"residual_initial_scale": 0.5}, ("attention.output.weight", "feed_forward.output.weight"), 0.5),
        ({"embedding_initializer_range": 0.06}, ("tokens.weight", "positions.weight", "token_types.weight"), 3.0),
        ({"initializer_range": 0.04}, (".weight",), 2.0),
    ):
        scaled = values(3, **changes)
        for name, parameter in plain.items():
            moves = name.endswith(ends) and parameter.dim() > 1
            torch.testing.assert_close(scaled[name], parameter * (factor if moves else 1.0), msg=f"{changes} {name}")


def test_low_precision_parameters_get_the_rounded_values():
    double, half = nn.Linear(8, 8), nn.Linear(8, 8).to(torch.bfloat16)
    initialise_parameters(double, CONFIG, 5)
    initialise_parameters(half, CONFIG, 5)
    assert torch.equal(double.weight.to(torch.bfloat16), half.weight)


def test_a_part_alone_starts_as_inside_the_whole():
    whole = values(3)
    part = nn.Linear(64, 64)
    initialise_parameters(part, CONFIG, 3, prefix="lm_head.dense.")
    assert torch.equal(part.weight, whole["lm_head.dense.weight"])
