"""µP: the rules hold for every parameter, and what they are for comes of them (the coordinate check in small)."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from tests.model.packed import VOCABULARY, inputs, shape
from xlm.model.pretraining import PretrainingModel
from xlm.model.width_scaling import WidthScaling, is_hidden_matrix

FOLDER = Path(__file__).parents[2] / "benchmarks"
WIDTHS = (32, 64, 128, 256)
EVERY_HEAD = {"sentence_head": True, "discriminator_head": True, "tied_output": False, "language_embeddings": True, "token_types": 2}


@pytest.fixture(scope="module")
def coordinate_check():
    sys.path.insert(0, str(FOLDER))  # the benchmark imports its neighbour
    try:
        spec = importlib.util.spec_from_file_location("coordinate_check", FOLDER / "coordinate_check.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules["coordinate_check"] = module  # where dataclasses look up their annotations
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(FOLDER))
    return module


def wide(width, base=16, **changes):
    sizes = {"width": width, "heads": 2, "feed_forward": 2 * width}
    return shape(**{**sizes, "width_scaling": {"base_width": base, "base_heads": 2}, **changes})


def parameters(config):
    model = PretrainingModel(config, VOCABULARY, 2)
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def test_hidden_matrices_are_those_whose_both_sides_grow():
    for choices in (EVERY_HEAD, {"norm_position": "post", "activation": "geglu", "positions": "rotary"}):
        narrow, broad = (parameters(wide(width, **choices)) for width in (16, 32))
        for name, parameter in narrow.items():
            grown = [one != other for one, other in zip(parameter.shape, broad[name].shape, strict=True)]
            assert is_hidden_matrix(name) == (len(grown) == 2 and all(grown)), name


def test_factors_follow_table_8():
    scaling = WidthScaling.of(wide(64))  # four times its base
    hidden, table, vector = "encoder.blocks.0.attention.qkv.weight", "encoder.embeddings.tokens.weight", "encoder.final_norm.weight"
    assert (scaling.initial_scale(hidden), scaling.initial_scale(table)) == (0.5, 1.0)
    assert [scaling.learning_rate_scale(name) for name in (hidden, table, vector)] == [0.25, 1.0, 1.0]
    assert scaling.output_scale == 0.25
    # What decays in a step is the product of both, alike at every width.
    assert [scaling.weight_decay_scale(name) * scaling.learning_rate_scale(name) for name in (hidden, table)] == [1.0, 1.0]
    # 1 / head width, where the base has 1 / sqrt(head width): here 32, and 8 in the base.
    assert scaling.attention_scale == pytest.approx(8**0.5 / 32)
    assert WidthScaling.of(wide(64, heads=8)).attention_scale == pytest.approx(1 / 8**0.5), "more heads of the same width"
    plain = WidthScaling.of(shape())
    assert (plain.initial_scale(hidden), plain.learning_rate_scale(hidden), plain.output_scale, plain.attention_scale) == (1, 1, 1, None)


def test_first_values_have_the_scaled_deviations():
    base, broad = parameters(wide(16, **EVERY_HEAD)), parameters(wide(256, **EVERY_HEAD))
    for name, parameter in broad.items():
        if parameter.dim() == 2 and parameter.numel() > 2000 and base[name].numel() > 200:
            expected = 0.4 / 4 if is_hidden_matrix(name) else 0.4
            assert float(parameter.std()) == pytest.approx(expected, rel=0.05), name


def test_at_the_bases_own_width_nothing_changes():
    own = {"width_scaling": {"base_width": 16, "base_heads": 2}}
    plain, scaled = (PretrainingModel(shape(**choices), VOCABULARY, 0) for choices in ({}, own))
    states = [model.encoder(**inputs()) for model in (plain, scaled)]
    torch.testing.assert_close(*states)
    torch.testing.assert_close(plain.logits(states[0]), scaled.logits(states[1]))


@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_what_a_few_steps_change_does_not_depend_on_the_width(coordinate_check, norm_position):
    scaled, plain = (coordinate_check.check(WIDTHS, norm_position, scaled=flag) for flag in (True, False))
    slopes = {name: coordinate_check.slope(WIDTHS, values) for name, values in scaled.items()}
    without = {name: coordinate_check.slope(WIDTHS, values) for name, values in plain.items()}
    for name, slope in slopes.items():
        # Scores of queries and keys begin as random as 1 / sqrt(width), and only then find each other.
        assert (-0.8 if "attention" in name else -0.25) < slope < 0.2, (name, slopes)
    grow = {"attention scores 1": 0.8, "attention scores 2": 0.8, "states 1": 0.25, "scores of pieces": 0.3}
    assert all(without[name] > least for name, least in grow.items()), without


@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_gradients_shrink_as_epsilon_does(coordinate_check, norm_position):
    found = {}
    for width in WIDTHS[:3]:
        model = coordinate_check.model_of(width, scaled=True, norm_position=norm_position, base=WIDTHS[0])
        data = iter(coordinate_check.batches(16, seed=1))
        coordinate_check.train(model, 2.0**-7, 3, data, lambda step: 1.0)
        model.zero_grad()
        coordinate_check.loss_of(model, next(data)).backward()
        for name, parameter in model.named_parameters():
            found.setdefault(name, []).append(float(parameter.grad.abs().mean()))
    for name, values in found.items():
        slope = coordinate_check.slope(WIDTHS[:3], values)
        if name != "lm_head.bias":
            assert -2.0 < slope < -0.7, (name, slope)
