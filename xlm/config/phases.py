"""Phases: what a run draws, how it lays rows out and what it predicts, stretch by stretch.

Everything that changes over time stands here, and all of it is a function of the step.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from xlm.config.strict import StrictModel

Language = Annotated[str, Field(pattern=r"^[a-z]{2,3}(-[A-Z][a-z]{3})?(-([A-Z]{2}|[0-9]{3}))?$")]
Objective = Literal["mlm", "tlm", "contrastive", "clm", "nsp", "sop", "rtd"]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Rate = Annotated[float, Field(gt=0.0, lt=1.0)]
Epochs = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]

# Objectives whose rows may be documents or full sentences, and those that read translation pairs.
TEXT_OBJECTIVES: tuple[Objective, ...] = ("mlm", "clm", "rtd")
PAIR_OBJECTIVES: tuple[Objective, ...] = ("tlm", "contrastive")
SENTENCE_OBJECTIVES: tuple[Objective, ...] = ("nsp", "sop")
# Options of an objective that others do not have.
_OPTIONS: dict[str, tuple[Objective, ...]] = {
    "rows": TEXT_OBJECTIVES,
    "form": ("tlm",),
    "mixup": ("contrastive",),
    "discriminator_weight": ("rtd",),
    "sentence_weight": SENTENCE_OBJECTIVES,
}


class ShareRamp(StrictModel):
    """A share that moves linearly from the first step of a phase to its last."""

    start: Share
    end: Share


class RateRamp(StrictModel):
    """A mask rate that moves linearly from the first step of a phase to its last."""

    start: Rate
    end: Rate


def _written_as(value: object) -> str:
    """Tell a ramp from a plain value, so that a mistake in one is not also reported as a mistake in the other."""
    return "ramp" if isinstance(value, dict | StrictModel) else "value"


MovingShare = Annotated[Annotated[Share, Tag("value")] | Annotated[ShareRamp, Tag("ramp")], Discriminator(_written_as)]
MovingRate = Annotated[Annotated[Rate, Tag("value")] | Annotated[RateRamp, Tag("ramp")], Discriminator(_written_as)]


def value_at(value: float | ShareRamp | RateRamp, fraction: float) -> float:
    """Return a value, or where its ramp stands after ``fraction`` (0 to 1) of the phase."""
    if isinstance(value, ShareRamp | RateRamp):
        return value.start + (value.end - value.start) * fraction
    return value


class _Sized(StrictModel):
    """What sizes are measured in (sentences: as known to the shards), and how often a corpus may be seen.

    ``max_epochs`` counts from the beginning of the run, in each objective for itself. A corpus that has reached
    it gives no more rows; the other corpora of the objective take its place.
    """

    unit: Literal["tokens", "rows", "sentences"] = "tokens"
    max_epochs: Epochs | None = None


class TemperatureSampling(_Sized):
    """q_i = p_i^alpha / sum_j p_j^alpha over a corpus's size p (XLM, Conneau & Lample 2019)."""

    kind: Literal["temperature"]
    alpha: MovingShare


class ProportionalSampling(_Sized):
    """In proportion to size: temperature sampling with alpha 1."""

    kind: Literal["proportional"]


class UniMaxSampling(StrictModel):
    """As many rows of each corpus over the phase, none more than ``max_epochs`` times (UniMax, Chung et al. 2023).

    Counted in rows, which are all of one length: the shares are those of tokens.
    """

    kind: Literal["unimax"]
    max_epochs: Epochs


class FixedSampling(StrictModel):
    """Weights by language, normalised over the languages present."""

    kind: Literal["fixed"]
    weights: dict[Language, Annotated[float, Field(ge=0.0, allow_inf_nan=False)]]
    max_epochs: Epochs | None = None


Sampling = Annotated[TemperatureSampling | ProportionalSampling | UniMaxSampling | FixedSampling, Field(discriminator="kind")]


class SpanSection(StrictModel):
    """Lengths of masked spans: geometric (SpanBERT: p .2, at most 10) or p(n) in proportion to 1/n (ALBERT: at most 3)."""

    lengths: Literal["geometric", "harmonic"] = "geometric"
    geometric_p: Annotated[float, Field(gt=0.0, le=1.0)] = 0.2
    longest: Annotated[int, Field(ge=1, le=64)] = 10


class MaskingSection(StrictModel):
    """Which positions MLM, TLM and RTD predict, and what stands there (80/10/10; RTD has its own shares)."""

    selection: Literal["token", "whole_word", "span", "frequency"] = "token"
    masked_share: Share = 0.8
    random_share: Share = 0.1
    rtd_masked_share: Share = 0.85  # ELECTRA's released code: the rest is kept, nothing is random
    span: SpanSection = SpanSection()
    frequency_alpha: Annotated[float, Field(ge=0.0, le=2.0)] = 0.5  # XLM's sample_alpha

    @model_validator(mode="after")
    def _shares_fit(self) -> MaskingSection:
        if self.masked_share + self.random_share > 1.0 + 1e-9:
            raise ValueError(
                f"masked_share {self.masked_share:g} and random_share {self.random_share:g} are more than 1 together; the rest is kept"
            )
        return self


class ObjectiveShare(StrictModel):
    """How much of a phase an objective gets (rows drawn), what their loss counts, and how its rows are laid out."""

    share: MovingShare
    loss_weight: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 1.0
    # mlm, clm, rtd. "documents": every document, or piece of one, a sequence of its own; "full_sentences":
    # a row is one sequence of consecutive sentences that may cross into the next document (RoBERTa).
    rows: Literal["documents", "full_sentences"] = "documents"
    # contrastive. Share of pairs that are joined with the next pair of their row, both sides alike, so that sentences
    # meet beside others (InfoXLM's mixup contrast).
    mixup: Share = 0.0
    # rtd: what the discriminator's loss counts beside the generator's (ELECTRA: 50).
    discriminator_weight: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 50.0
    # nsp, sop: what the loss of the two classes counts beside the masked tokens'.
    sentence_weight: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 1.0
    # tlm. "infoxlm": <s> s </s> t </s>, positions go on; "xlm": </s> s </s> </s> t </s>, positions restart;
    # "bert": as infoxlm, told apart by token types.
    form: Literal["infoxlm", "xlm", "bert"] = "infoxlm"

    @property
    def ever_drawn(self) -> bool:
        """Whether the share is above 0 at any step."""
        return max(value_at(self.share, 0.0), value_at(self.share, 1.0)) > 0.0


class Phase(StrictModel):
    """A stretch of training; what moves inside it moves linearly."""

    name: str
    steps: Annotated[int, Field(ge=1)]
    sequence_length: Annotated[int, Field(ge=8, le=8192)]
    languages: Literal["all"] | Annotated[tuple[Language, ...], Field(min_length=1)] = "all"
    sampling: Sampling
    objectives: dict[Objective, ObjectiveShare]
    # Null: training.optimizer.learning_rate. The schedule's shape goes through the whole run and is scaled to this peak here.
    learning_rate: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] | None = None
    mask_rate: MovingRate = 0.15
    masking: MaskingSection = MaskingSection()
    # Ramps of sampling and shares are stairs of this many plateaus, each at its middle value.
    ramp_plateaus: Annotated[int, Field(ge=2, le=1000)] = 32

    @model_validator(mode="after")
    def _shares_sum_to_one(self) -> Phase:
        for fraction, where in ((0.0, "at its first step"), (1.0, "at its last step")):
            total = sum(value_at(objective.share, fraction) for objective in self.objectives.values())
            if abs(total - 1.0) > 1e-6:
                raise ValueError(f"the objective shares of phase '{self.name}' sum to {total:g} {where}; they must sum to 1")
        return self

    @model_validator(mode="after")
    def _something_counts(self) -> Phase:
        if not any(objective.loss_weight for objective in self.objectives.values() if objective.ever_drawn):
            raise ValueError(f"every objective that phase '{self.name}' draws has loss_weight 0, so nothing would be learnt; raise one")
        return self

    @model_validator(mode="after")
    def _languages_are_named_once(self) -> Phase:
        if self.languages != "all" and len(set(self.languages)) < len(self.languages):
            raise ValueError(f"a language stands twice in the languages of phase '{self.name}'; name each once")
        return self

    @model_validator(mode="after")
    def _options_belong_to_their_objective(self) -> Phase:
        for name, objective in self.objectives.items():
            for option, owners in _OPTIONS.items():
                default = ObjectiveShare.model_fields[option].default
                if getattr(objective, option) != default and name not in owners:
                    raise ValueError(f"objectives.{name}.{option} is a choice of {', '.join(owners)} only; take it out")
        return self

    @property
    def has_ramps(self) -> bool:
        """Whether sampling or shares move inside the phase."""
        alpha = getattr(self.sampling, "alpha", 0.0)
        return isinstance(alpha, ShareRamp) or any(isinstance(objective.share, ShareRamp) for objective in self.objectives.values())

    def mask_rate_at(self, step_in_phase: int) -> float:
        """Return the mask rate of a step of the phase, counted from 0."""
        return value_at(self.mask_rate, step_in_phase / max(1, self.steps - 1))
