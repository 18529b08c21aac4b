"""The training section of a recipe: how much goes into a step, optimizer, schedule, checkpoints, validation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from xlm.config.model import Rate
from xlm.config.phases import Share
from xlm.config.strict import StrictModel

PositiveNumber = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Momentum = Annotated[float, Field(ge=0.0, lt=1.0)]
Count = Annotated[int, Field(ge=1)]


class OptimizerSection(StrictModel):
    """Decoupled weight decay; none on norms, biases and embeddings' positions.

    ``adamw`` is Loshchilov & Hutter's (2019), ``lamb`` scales each tensor's step to its weights for large batches (You et al.
    2020), ``muon`` orthogonalises the momentum of hidden matrices (Jordan et al. 2024) and leaves the rest to AdamW; its steps
    are as long as AdamW's, so that one learning rate serves both.
    """

    kind: Literal["adamw", "lamb", "muon"] = "adamw"
    learning_rate: PositiveNumber
    betas: tuple[Momentum, Momentum] = (0.9, 0.98)
    momentum: Momentum = 0.95  # muon's, of hidden matrices
    epsilon: PositiveNumber = 1e-6
    weight_decay: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.01
    token_embedding_learning_rate_scale: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 1.0


class ScheduleSection(StrictModel):
    """The learning rate, a function of the step alone.

    ``warmup_stable_decay`` stays at the peak until the last ``decay_share`` of the steps, and falls there by 1 - sqrt
    (Hägele et al. 2024). A phase may have a peak of its own.
    """

    kind: Literal["linear", "cosine", "constant", "inverse_square_root", "warmup_stable_decay"] = "linear"
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    final_share: Share = 0.0
    decay_share: Share = 0.2


class BatchWarmupSection(StrictModel):
    """Smaller steps at the beginning: tokens of a step grow linearly from ``start_tokens`` to tokens_per_step over ``steps``.

    Rows come in the same order as without it; there are fewer of them in the same number of steps.
    """

    start_tokens: Count
    steps: Count


class NonFiniteSection(StrictModel):
    """What happens to steps whose gradient is not finite: they are skipped and counted on all ranks alike, up to a limit."""

    limit: Annotated[int, Field(ge=0)] = 100  # more of them in a run end it
    limit_in_a_row: Annotated[int, Field(ge=1)] = 20  # so many without one that counts between them end it


class LossScaleSection(StrictModel):
    """Dynamic loss scaling of fp16 (Micikevicius et al. 2018), in DeepSpeed's terms."""

    initial_power: Annotated[int, Field(ge=0, le=32)] = 16  # the scale starts at 2 to this
    window: Count = 1000  # finite steps after which it doubles
    minimum: Count = 1  # below it a gradient that is not finite is no longer the scale's fault


class ContrastiveSection(StrictModel):
    """InfoNCE over sentences (van den Oord et al. 2018), both directions; the options are XLCO's (InfoXLM, Chi et al. 2021)."""

    temperature: Annotated[float, Field(gt=0.0)] = 0.05
    pooling: Literal["mean", "first"] = "mean"  # of a sentence's tokens, or its <s> alone
    layer: Annotated[int, Field(ge=0)] | None = None  # whose states are pooled (0: embeddings); null: the last
    # Pairs of earlier steps that serve as negatives beside those of the step (MoCo, He et al. 2020).
    queue_pairs: Annotated[int, Field(ge=0)] = 0
    # Keys come from a slow copy of the encoder, which keeps this share of itself in each step; null: from the encoder itself.
    momentum: Momentum | None = None


class CheckpointSection(StrictModel):
    """When to save and what to keep: the last ones, every so many steps one for good, and the best by validation loss."""

    every_steps: Count = 500
    keep_last: Count = 2
    keep_every_steps: Count | None = None  # a multiple of every_steps
    keep_best: bool = False  # needs training.validation
    asynchronous: bool = False  # files are written while training goes on; costs a copy of the state in CPU memory

    @model_validator(mode="after")
    def _kept_ones_are_saved(self) -> CheckpointSection:
        if self.keep_every_steps is not None and self.keep_every_steps % self.every_steps:
            raise ValueError(
                f"keep_every_steps {self.keep_every_steps} is not a multiple of every_steps {self.every_steps}, "
                "but only saved steps can be kept"
            )
        return self


class ValidationSection(StrictModel):
    """MLM and TLM loss and accuracy by language on rows that training never draws, masked once and for all."""

    every_steps: Count
    rows_per_language: Count = 32
    seed: Annotated[int, Field(ge=0)] = 0  # of the masks: runs that share it and the rows can be compared


class LoaderSection(StrictModel):
    """Who builds batches ahead of training; decides no number."""

    workers: Annotated[int, Field(ge=0, le=64)] = 0  # processes of each rank; 0: one thread
    steps_ahead: Annotated[int, Field(ge=1, le=1000)] = 2  # of the thread, or of each worker


class TrainingSection(StrictModel):
    """Everything the trainer needs beside the phases."""

    tokens_per_step: Count
    micro_batch_tokens: Count
    batch_warmup: BatchWarmupSection | None = None
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    loss_scale: LossScaleSection = LossScaleSection()  # fp16 alone
    optimizer: OptimizerSection
    schedule: ScheduleSection = ScheduleSection()
    gradient_clipping: Annotated[float, Field(ge=0.0)] = 1.0
    non_finite: NonFiniteSection = NonFiniteSection()
    contrastive: ContrastiveSection = ContrastiveSection()
    label_smoothing: Rate = 0.0  # of every prediction of a piece
    z_loss: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.0  # times the squared log normaliser (PaLM: 1e-4)
    # Layers keep their inputs alone and are computed a second time in backward: the same numbers, less memory, a third more work.
    activation_checkpointing: bool = False
    # torch.compile for the activation and its gradient: other rounding, half a minute at the start, gains with GeGLU.
    compile: bool = False
    checkpoint: CheckpointSection = CheckpointSection()
    validation: ValidationSection | None = None
    loader: LoaderSection = LoaderSection()
    log_every_steps: Count = 10
    process_group_timeout_s: Annotated[int, Field(ge=10)] = 300

    @model_validator(mode="after")
    def _batches_grow(self) -> TrainingSection:
        if self.batch_warmup is not None and self.batch_warmup.start_tokens > self.tokens_per_step:
            raise ValueError(
                f"batch_warmup.start_tokens {self.batch_warmup.start_tokens} is more than tokens_per_step {self.tokens_per_step}, "
                "where batches stop growing; lower it"
            )
        return self

    @model_validator(mode="after")
    def _the_best_is_measured(self) -> TrainingSection:
        if self.checkpoint.keep_best and self.validation is None:
            raise ValueError("checkpoint.keep_best needs training.validation, whose loss says which one is best")
        if self.checkpoint.keep_best and self.validation is not None and self.checkpoint.every_steps % self.validation.every_steps:
            raise ValueError(
                f"checkpoint.keep_best needs every saved step measured, but checkpoint.every_steps {self.checkpoint.every_steps} "
                f"is not a multiple of validation.every_steps {self.validation.every_steps}"
            )
        return self
