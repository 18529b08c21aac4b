"""The shape of an encoder. Values outside what this version builds are named errors, never ignored."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from xlm.config.strict import StrictModel

Positive = Annotated[int, Field(ge=1)]


class ModelConfig(StrictModel):
    """Sizes and choices of one encoder; the vocabulary size comes from the vocabulary."""

    width: Positive
    layers: Positive
    heads: Positive
    feed_forward: Positive
    max_positions: Positive
    norm_position: Literal["pre", "post"] = "pre"
    positions: Literal["learned"] = "learned"
    activation: Literal["gelu"] = "gelu"
    token_types: Annotated[int, Field(ge=0)] = 0
    language_embeddings: bool = False
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    initializer_range: Annotated[float, Field(gt=0.0)] = 0.02
    tied_output: bool = True
    # Multiplies token embeddings on the way in (Vaswani et al. 2017 use sqrt(width)), so that a tied
    # table can be small for the softmax and large for the encoder.
    embedding_scale: Annotated[float, Field(gt=0.0)] = 1.0
    norm_epsilon: Annotated[float, Field(gt=0.0)] = 1e-5

    @model_validator(mode="after")
    def _heads_divide_width(self) -> ModelConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not divisible by heads {self.heads}")
        return self
