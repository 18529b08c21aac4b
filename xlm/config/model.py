"""The shape of an encoder and of its heads: one set of axes on which every family lies.

Presets (`xlm.config.presets`) name points of it: `model: {preset: xlm-r-base, dropout: 0.0}` takes a preset's
values and changes one.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from xlm.config.presets import with_preset
from xlm.config.strict import StrictModel

Positive = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(ge=0.0, lt=1.0)]
PositiveNumber = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]


class GeneratorSection(StrictModel):
    """ELECTRA's generator (Clark et al. 2020): a smaller encoder on the same embeddings, positions and types included."""

    width: Positive
    layers: Positive
    heads: Positive
    feed_forward: Positive

    @model_validator(mode="after")
    def _heads_divide_width(self) -> GeneratorSection:
        if self.width % self.heads:
            raise ValueError(f"generator.width {self.width} is not divisible by generator.heads {self.heads}")
        return self


class WidthScalingSection(StrictModel):
    """µP (Yang et al. 2022): the model for which learning rate and initialisation were tuned; wider ones follow it."""

    base_width: Positive
    base_heads: Positive

    @model_validator(mode="after")
    def _heads_divide_width(self) -> WidthScalingSection:
        if self.base_width % self.base_heads:
            raise ValueError(f"width_scaling.base_width {self.base_width} is not divisible by width_scaling.base_heads {self.base_heads}")
        return self


class ModelConfig(StrictModel):
    """Sizes and choices of one encoder; the vocabulary size comes from the vocabulary."""

    width: Positive
    layers: Positive
    heads: Positive
    feed_forward: Positive
    max_positions: Positive

    # What the first block reads.
    embedding_width: Positive | None = None  # null: width. Smaller: factorised, with a projection to width (ALBERT)
    positions: Literal["learned", "sinusoidal", "rotary"] = "learned"
    rotary_base: PositiveNumber = 10_000.0
    token_types: Annotated[int, Field(ge=0)] = 0
    language_embeddings: bool = False
    embedding_norm: bool | None = None  # null: as published, post-norm encoders have it and pre-norm ones do not
    # Multiplies token embeddings on the way in (Vaswani et al. 2017 use sqrt(width)), so that a tied
    # table can be small for the softmax and large for the encoder.
    embedding_scale: PositiveNumber = 1.0

    # Blocks.
    norm_position: Literal["pre", "post"] = "pre"
    norm_epsilon: PositiveNumber = 1e-5
    # Pre-norm stacks end with a norm; without it the length of a token's state survives into the mean
    # over a sentence, so a token that tells sentences apart can weigh more. "head": the norm belongs to the
    # language-model head, and states stay as the last block leaves them.
    final_norm: Literal["encoder", "head", "none"] = "encoder"
    activation: Literal["gelu", "gelu_tanh", "geglu"] = "gelu"
    biases: bool = True  # of linear maps and norms; output_bias is apart
    layer_groups: Positive | None = None  # layers of a group are one block (ALBERT: 1); null: every layer its own
    # A token sees window // 2 tokens to each side, except in every global_every-th layer, the first included.
    local_window: Annotated[int, Field(ge=2)] | None = None
    global_every: Positive = 1
    local_rotary_base: PositiveNumber | None = None  # null: rotary_base

    # Heads.
    language_model_head: bool = True
    head_transform: bool = True  # dense, activation, norm before the projection (BERT); XLM has none
    tied_output: bool = True
    output_bias: bool = True
    sentence_head: bool = False  # pooler and two classes: NSP, SOP
    discriminator_head: bool = False  # original or replaced, for every token: RTD
    generator: GeneratorSection | None = None

    # Regularisation and first values.
    dropout: Rate = 0.0
    attention_dropout: Rate | None = None  # null: dropout
    stochastic_depth: Rate = 0.0  # of the last layer; earlier ones in proportion to their depth
    initialisation: Literal["normal", "truncated_normal"] = "normal"
    initializer_range: PositiveNumber = 0.02
    embedding_initializer_range: PositiveNumber | None = None  # null: initializer_range
    # Multiplies the initial output matrices of every residual branch (GPT-2: 1 / sqrt(2 x layers)); small
    # values let embeddings that already mean something reach the top unchanged.
    residual_initial_scale: PositiveNumber = 1.0
    width_scaling: WidthScalingSection | None = None

    @model_validator(mode="before")
    @classmethod
    def _take_preset(cls, data: Any) -> Any:  # noqa: ANN401 (whatever YAML holds)
        return with_preset(data)

    @model_validator(mode="after")
    def _parts_fit(self) -> ModelConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not divisible by heads {self.heads}")
        if self.norm_position == "post" and self.final_norm != "encoder":
            raise ValueError(f"final_norm: {self.final_norm} is a choice of pre-norm encoders; norm_position is post")
        if self.positions == "rotary" and (self.width // self.heads) % 2:
            raise ValueError(f"rotary positions turn pairs of numbers, but width / heads is {self.width // self.heads}; make it even")
        if self.layer_groups is not None and self.layers % self.layer_groups:
            raise ValueError(f"layers {self.layers} cannot be shared evenly among layer_groups {self.layer_groups}")
        return self

    @model_validator(mode="after")
    def _local_attention_is_asked_for(self) -> ModelConfig:
        if self.local_window is None and (self.global_every != 1 or self.local_rotary_base is not None):
            raise ValueError("global_every and local_rotary_base are choices of local attention; set local_window too")
        if self.local_rotary_base is not None and self.positions != "rotary":
            raise ValueError(f"local_rotary_base is a choice of rotary positions; positions is {self.positions}")
        if self.local_window is not None and self.global_every == 1:
            raise ValueError("local_window has no effect while global_every is 1, every layer being global; set global_every to 2 or more")
        return self

    @model_validator(mode="after")
    def _heads_fit(self) -> ModelConfig:
        if not self.head_transform and self.embedding_size != self.width:
            raise ValueError("head_transform: false needs embedding_width equal to width, which the projection reads")
        if self.final_norm == "head" and not self.language_model_head:
            raise ValueError("final_norm: head is the norm of the language-model head; language_model_head is false")
        if self.generator is not None and not self.discriminator_head:
            raise ValueError("a generator needs a discriminator to train: set discriminator_head to true, or take generator out")
        if self.generator is not None and not self.tied_output:
            raise ValueError("a generator projects onto the token table; set tied_output to true, or take generator out")
        if self.generator is not None and self.positions == "rotary" and (self.generator.width // self.generator.heads) % 2:
            raise ValueError("rotary positions turn pairs of numbers; make generator.width / generator.heads even")
        if self.width_scaling is not None and (self.embedding_size != self.width or self.generator is not None):
            raise ValueError("width_scaling is defined for embedding_width equal to width and without a generator")
        return self

    @property
    def embedding_size(self) -> int:
        """Width of the embedding tables."""
        return self.width if self.embedding_width is None else self.embedding_width

    @property
    def has_embedding_norm(self) -> bool:
        """Whether the sum of the embeddings is normalised."""
        return self.norm_position == "post" if self.embedding_norm is None else self.embedding_norm

    def reach(self, layer: int) -> int | None:
        """Return how many tokens to each side a layer sees, None for all."""
        if self.local_window is None or (layer % self.global_every == 0):
            return None
        return self.local_window // 2

    def rotary_base_of(self, layer: int) -> float:
        """Return the base of a layer's rotary positions."""
        if self.local_rotary_base is not None and self.reach(layer) is not None:
            return self.local_rotary_base
        return self.rotary_base
