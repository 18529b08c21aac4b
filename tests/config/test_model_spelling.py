"""Two sections that mean one model are one, and two that do not are told apart by field."""

import pytest

from xlm.config.model import ModelConfig
from xlm.config.model_spelling import differing_fields, normal_spelling
from xlm.model.pretraining import PretrainingModel

SIZES = {"width": 8, "layers": 4, "heads": 2, "feed_forward": 16, "max_positions": 12}
HEADLESS = {"language_model_head": False}
RTD = {"discriminator_head": True, "generator": {"width": 4, "layers": 1, "heads": 1, "feed_forward": 4}}
LOCAL = {"positions": "rotary", "local_window": 4, "global_every": 2}


@pytest.mark.parametrize(
    ("written", "short"),
    [
        ({"embedding_width": 8}, {}),
        ({"layer_groups": 4}, {}),
        ({"dropout": 0.1, "attention_dropout": 0.1}, {"dropout": 0.1}),
        ({"norm_position": "post", "embedding_norm": True}, {"norm_position": "post"}),
        ({**LOCAL, "local_rotary_base": 10_000.0}, LOCAL),
        ({"rotary_base": 500.0}, {}),  # of learned positions
        ({**HEADLESS, "head_transform": False, "tied_output": False, "output_bias": False}, HEADLESS),
        ({**HEADLESS, **RTD, "head_transform": False}, {**HEADLESS, **RTD}),
    ],
)
def test_a_value_that_is_the_default_is_the_same_unwritten(written, short):
    assert normal_spelling(ModelConfig(**SIZES, **written)) == ModelConfig(**SIZES, **short)
    assert differing_fields(ModelConfig(**SIZES, **written), ModelConfig(**SIZES, **short)) == []


def test_what_decides_a_model_is_told_apart_and_what_decides_training_is_not():
    plain = ModelConfig(**SIZES)
    assert differing_fields(plain, ModelConfig(**SIZES, dropout=0.2, stochastic_depth=0.1, residual_initial_scale=0.5)) == []
    assert differing_fields(plain, ModelConfig(**{**SIZES, "heads": 4}, norm_epsilon=1e-6)) == ["heads", "norm_epsilon"]


@pytest.mark.parametrize("head", [{"sentence_head": True}, {"discriminator_head": True}, RTD])
def test_biases_of_classes_count_where_there_is_a_head(head):
    one, other = (ModelConfig(**SIZES, **HEADLESS, **head, output_bias=bias) for bias in (True, False))
    assert differing_fields(one, other) == ["output_bias"]


def test_a_headless_choice_makes_no_difference_to_the_tensors():
    """The oracle of the spelling: same names and shapes, and so the same model."""
    written = {**HEADLESS, "head_transform": False, "tied_output": False}
    for heads in ({}, {"sentence_head": True}, {"discriminator_head": True}):
        one, other = (PretrainingModel(ModelConfig(**SIZES, **heads, **options), 9, 0) for options in (written, HEADLESS))
        assert {name: tensor.shape for name, tensor in one.state_dict().items()} == {
            name: tensor.shape for name, tensor in other.state_dict().items()
        }
