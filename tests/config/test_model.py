"""Shapes that cannot be built are refused where they are written down."""

import pytest
from pydantic import ValidationError

from xlm.config.model import ModelConfig

SIZES = {"width": 8, "layers": 4, "heads": 2, "feed_forward": 16, "max_positions": 4}
GENERATOR = {"width": 4, "layers": 1, "heads": 1, "feed_forward": 4}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"heads": 3}, "width 8 is not divisible by heads 3"),
        ({"norm_position": "post", "final_norm": "none"}, "final_norm: none is a choice of pre-norm encoders; norm_position is post"),
        ({"norm_position": "post", "final_norm": "head"}, "final_norm: head is a choice of pre-norm"),
        ({"final_norm": "head", "language_model_head": False}, "language_model_head is false"),
        ({"positions": "rotary", "heads": 8}, "width / heads is 1; make it even"),
        ({"layer_groups": 3}, "layers 4 cannot be shared evenly among layer_groups 3"),
        ({"global_every": 3}, "set local_window too"),
        ({"local_rotary_base": 100.0, "positions": "rotary"}, "set local_window too"),
        ({"local_window": 4, "local_rotary_base": 100.0}, "positions is learned"),
        ({"embedding_width": 4, "head_transform": False}, "head_transform: false needs embedding_width equal to width"),
        ({"generator": GENERATOR}, "a generator needs a discriminator"),
        ({"generator": GENERATOR, "discriminator_head": True, "tied_output": False}, "a generator projects onto the token table"),
        ({"generator": {**GENERATOR, "heads": 3}, "discriminator_head": True}, "generator.width 4 is not divisible by generator.heads 3"),
        ({"width_scaling": {"base_width": 4, "base_heads": 3}}, "base_width 4 is not divisible by width_scaling.base_heads 3"),
        ({"width_scaling": {"base_width": 4, "base_heads": 2}, "embedding_width": 4}, "width_scaling is defined for"),
        ({"dropout": 1.0}, "less than 1"),
        ({"norm_epsilon": float("inf")}, "finite"),
        ({"positions": "relative"}, "'learned', 'sinusoidal' or 'rotary'"),
    ],
)
def test_what_does_not_fit_is_said(changes, words):
    ModelConfig(**SIZES)
    with pytest.raises(ValidationError) as raised:
        ModelConfig(**{**SIZES, **changes})
    assert words in str(raised.value)


def test_a_layer_reaches_half_a_window_to_each_side_and_every_third_one_everything():
    config = ModelConfig(**SIZES, local_window=6, global_every=3)
    assert [config.reach(layer) for layer in range(4)] == [None, 3, 3, None]


def test_local_layers_may_turn_by_another_base():
    config = ModelConfig(**SIZES, positions="rotary", local_window=6, global_every=2, rotary_base=100.0, local_rotary_base=10.0)
    assert [config.rotary_base_of(layer) for layer in range(4)] == [100.0, 10.0, 100.0, 10.0]
    assert ModelConfig(**SIZES, positions="rotary").rotary_base_of(1) == 10_000.0


def test_embeddings_are_normalised_where_published_models_do_so_unless_said():
    assert ModelConfig(**SIZES, norm_position="post").has_embedding_norm
    assert not ModelConfig(**SIZES).has_embedding_norm
    assert ModelConfig(**SIZES, embedding_norm=True).has_embedding_norm
    assert ModelConfig(**SIZES, embedding_width=4).embedding_size == 4
