"""Shapes that cannot be built are refused where they are written down."""

import pytest
from pydantic import ValidationError

from xlm.config.model import ModelConfig

SIZES = {"width": 8, "layers": 1, "heads": 2, "feed_forward": 16, "max_positions": 4}


def test_heads_divide_the_width():
    assert ModelConfig(**SIZES).width == 8
    with pytest.raises(ValidationError, match="not divisible by heads 3"):
        ModelConfig(**{**SIZES, "heads": 3})


def test_only_pre_norm_can_do_without_a_final_norm():
    assert not ModelConfig(**SIZES, final_norm=False).final_norm
    with pytest.raises(ValidationError, match="norm_position is post"):
        ModelConfig(**SIZES, norm_position="post", final_norm=False)
