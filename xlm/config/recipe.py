"""The recipe: one YAML file that names an experiment completely.

A recipe owns every number of a run (batch sizes, precision, optimizer, schedule, clipping); the
DeepSpeed file beside it owns only ZeRO, offload and communication (promise 5).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from xlm.config.model import ModelConfig
from xlm.config.phases import Language, Phase, Share
from xlm.config.strict import StrictModel
from xlm.config.training import PositiveNumber, TrainingSection


class CorporaSection(StrictModel):
    """Where the text comes from."""

    manifest: Path
    max_documents_per_language: Annotated[int, Field(ge=1)] | None = None


class IntentsSection(StrictModel):
    """Intent classification from sentence templates."""

    sentences_per_template: Annotated[int, Field(ge=1)] = 4
    dev_share: Share = 0.15
    test_share: Share = 0.25
    shown_only_languages: tuple[Language, ...] = ()


class RetrievalSection(StrictModel):
    """Held-out translation pairs; a pool is min(max_pool, pool_share x distinct English strings)."""

    max_pool: Annotated[int, Field(ge=2)] = 2000
    pool_share: Share = 0.1
    dev_pool: Annotated[int, Field(ge=2)] = 200


class TopicsSection(StrictModel):
    """Topics of encyclopaedia articles; ``source`` is the manifest's source of them."""

    source: str
    languages: Annotated[tuple[Language, ...], Field(min_length=2)]
    train_per_class: Annotated[int, Field(ge=1)] = 150
    dev_per_class: Annotated[int, Field(ge=1)] = 30
    test_per_class: Annotated[int, Field(ge=1)] = 100


class TasksSection(StrictModel):
    """Evaluation sets, drawn before the corpus is cleaned, frozen by a seed."""

    seed: int
    languages: tuple[Language, ...]
    intents: IntentsSection = IntentsSection()
    retrieval: RetrievalSection = RetrievalSection()
    topics: TopicsSection | None = None


class StorageSection(StrictModel):
    """Where shards lie when the machines of a cluster share no disk: any URL that fsspec opens."""

    url: str
    cache_gib: PositiveNumber = 50.0  # a machine keeps at most this much of them


class ShardsSection(StrictModel):
    """How the corpus is cut into token shards and row plans, and where they lie."""

    items_per_shard: Annotated[int, Field(ge=1)] = 200_000
    variants: Annotated[int, Field(ge=1)] = 1
    # Pairs of every two languages that translate the same text, not only with the source language; each
    # variant pairs a text's languages another way.
    n_way: bool = False
    # Of the documents and pairs, set aside for `training.validation`: no row of training has their text (docs/training.md).
    held_out_share: Annotated[float, Field(ge=0.0, le=0.5)] = 0.0
    # Rows are drawn from this many shards at a time, in random order; null: from the whole corpus. A small
    # number bounds what a machine must hold of shards that lie elsewhere.
    shuffle_window: Annotated[int, Field(ge=1)] | None = None
    storage: StorageSection | None = None


class AlignedInitialisation(StrictModel):
    """Token embeddings from the truncated SVD of pieces x aligned strings."""

    kind: Literal["aligned"]
    scale: Annotated[float, Field(gt=0.0)] = 0.3
    singular_value_power: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    # Row lengths a / (a + share of strings with the piece) (SIF), instead of log(1 + 1 / share).
    sif: Annotated[float, Field(gt=0.0)] | None = None


class RandomInitialisation(StrictModel):
    """Token embeddings from the model's published initialisation."""

    kind: Literal["random"]


class CodeSwitchedTraining(StrictModel):
    """Further copies of the English training sentences, their words switched by the training half of the lexicons (CoSDA-ML)."""

    rate: Share = 0.5
    copies: Annotated[int, Field(ge=1, le=64)] = 4
    # Those switched into; all of the tasks' languages where none are named.
    languages: tuple[Language, ...] = ()


class WhiteningSection(StrictModel):
    """Pairs of pretraining text from which a probe learns what translations differ in (`xlm.evaluation.readout`)."""

    pairs_per_language: Annotated[int, Field(ge=2)] = 500
    fewest_words: Annotated[int, Field(ge=1)] = 2  # English ones; names of one word say little about sentences


class EvaluationSection(StrictModel):
    """The zero-shot protocol: train on English, choose on English dev, score every language."""

    seeds: Annotated[tuple[int, ...], Field(min_length=1)] = (1, 2, 3)
    # Whose states are pooled: several are tried on dev, one by one; "joined" stands for all of them side by side.
    layers: Annotated[tuple[int, ...], Field(min_length=1)] | Literal["final", "joined"] = "final"
    whitening: WhiteningSection | None = None
    probe_penalties: Annotated[tuple[PositiveNumber, ...], Field(min_length=1)] = (0.1, 1.0, 10.0)
    finetune_learning_rates: Annotated[tuple[PositiveNumber, ...], Field(min_length=1)] = (5e-4,)
    finetune_epochs: Annotated[int, Field(ge=1)] = 5
    finetune_batch_size: Annotated[int, Field(ge=1)] = 32
    freeze_token_embeddings: bool = True
    bootstrap_samples: Annotated[int, Field(ge=100)] = 2000
    # Means that the report's summary quotes: the eight languages of the required result.
    mean_languages: tuple[Language, ...] = ()
    # Those whose dev templates choices of pretraining may look at; marked in every table, with means without them beside.
    dev_languages: tuple[Language, ...] = ()
    code_switching_rates: tuple[Share, ...] = (0.1, 0.25, 0.5)
    code_switching_languages: tuple[Language, ...] = ()
    code_switched_training: CodeSwitchedTraining | None = None

    @model_validator(mode="after")
    def _seeds_are_distinct(self) -> EvaluationSection:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("a seed stands twice in evaluation.seeds; each counts once")
        return self

    @model_validator(mode="after")
    def _some_language_is_not_for_dev(self) -> EvaluationSection:
        if self.mean_languages and set(self.mean_languages) <= set(self.dev_languages):
            raise ValueError(
                "evaluation.dev_languages names every one of evaluation.mean_languages; leave at least one that no choice sees"
            )
        return self


class Recipe(StrictModel):
    """One complete, named experiment."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    seed: Annotated[int, Field(ge=0)]
    corpora: CorporaSection
    vocabulary: Path  # a spec (YAML), or the folder of a vocabulary that exists already
    # A model folder (pipelines/import_hf.py, or a checkpoint) whose weights the run starts from.
    start_from: Path | None = None
    tasks: TasksSection | None = None
    shards: ShardsSection = ShardsSection()
    embeddings: Annotated[AlignedInitialisation | RandomInitialisation, Field(discriminator="kind")]
    model: ModelConfig
    phases: Annotated[tuple[Phase, ...], Field(min_length=1)]
    training: TrainingSection
    evaluation: EvaluationSection = EvaluationSection()

    @model_validator(mode="after")
    def _phases_have_distinct_names(self) -> Recipe:
        names = [phase.name for phase in self.phases]
        if len(set(names)) != len(names):
            raise ValueError("two phases have the same name; give each its own")
        return self

    @model_validator(mode="after")
    def _there_is_text_to_validate_on(self) -> Recipe:
        if self.training.validation is not None and not self.shards.held_out_share:
            raise ValueError(
                "training.validation needs text that training never reads, and shards.held_out_share is 0; set it to 0.01, say, "
                "and build the shards again"
            )
        return self

    @model_validator(mode="after")
    def _embeddings_come_from_one_place(self) -> Recipe:
        if self.start_from is not None and self.embeddings.kind == "aligned":
            raise ValueError("start_from brings token embeddings, and embeddings.kind aligned would replace them; set it to random")
        return self

    @model_validator(mode="after")
    def _rows_fit_the_model(self) -> Recipe:
        for phase in self.phases:
            if phase.sequence_length > self.model.max_positions:
                raise ValueError(
                    f"phase '{phase.name}' has rows of {phase.sequence_length} tokens, but model.max_positions is "
                    f"{self.model.max_positions}; shorten the rows or raise the positions"
                )
        return self

    @model_validator(mode="after")
    def _a_micro_batch_holds_a_row(self) -> Recipe:
        longest = max(phase.sequence_length for phase in self.phases)
        sizes = {name: getattr(self.training, name) for name in ("tokens_per_step", "micro_batch_tokens")}
        if self.training.batch_warmup is not None:
            sizes["batch_warmup.start_tokens"] = self.training.batch_warmup.start_tokens
        for name, tokens in sizes.items():
            if tokens < longest:
                raise ValueError(f"training.{name} is {tokens}, less than one row of {longest} tokens; raise it or shorten the rows")
        return self

    @model_validator(mode="after")
    def _rules_of_the_width_are_adams(self) -> Recipe:
        kind = self.training.optimizer.kind
        if self.model.width_scaling is not None and kind != "adamw":
            raise ValueError(
                f"model.width_scaling says how AdamW's learning rates follow the width, and the steps of {kind} follow it otherwise; "
                "set training.optimizer.kind to adamw or take width_scaling out"
            )
        return self

    @model_validator(mode="after")
    def _scored_languages_have_tasks(self) -> Recipe:
        if self.tasks is None:
            return self
        if len(set(self.tasks.languages)) < len(self.tasks.languages):
            raise ValueError("a language stands twice in tasks.languages; name each once")
        asked = {
            "tasks.intents.shown_only_languages": self.tasks.intents.shown_only_languages,
            "evaluation.mean_languages": self.evaluation.mean_languages,
            "evaluation.dev_languages": self.evaluation.dev_languages,
        }
        if "en" in self.evaluation.dev_languages:
            raise ValueError("evaluation.dev_languages names English, on whose dev sentences every choice is made anyway; take it out")
        for name, languages in asked.items():
            missing = [language for language in languages if language not in self.tasks.languages]
            if missing:
                raise ValueError(f"{name} asks for {', '.join(missing)}, which tasks.languages does not name; add it there or take it out")
        return self

    @property
    def total_steps(self) -> int:
        """Steps of all phases together."""
        return sum(phase.steps for phase in self.phases)
