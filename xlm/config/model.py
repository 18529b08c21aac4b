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
    # Pre-norm stacks end with a norm; without it the length of a token's state survives into the mean
    # over a sentence, so a token that tells sentences apart can weigh more.
    final_norm: bool = True
    # Multiplies the initial output matrices of every residual branch (GPT-2: 1 / sqrt(2 x layers)); small
    # values let embeddings that already mean something reach the top unchanged.
    residual_initial_scale: Annotated[float, Field(gt=0.0)] = 1.0

    @model_validator(mode="after")
    def _parts_fit(self) -> ModelConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not divisible by heads {self.heads}")
        if self.norm_position == "post" and not self.final_norm:
            raise ValueError("final_norm: false is a choice of pre-norm encoders; norm_position is post")
        return self
