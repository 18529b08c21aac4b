"""From a recipe and a run folder to a loop that can start: what is read, checked and built, in order.

Everything a user can get wrong is found here, on every rank, before the first step.
"""

from __future__ import annotations

import platform
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from xlm.batching.loader import BatchLoader
from xlm.config.recipe import AlignedInitialisation, Recipe
from xlm.errors import UserError
from xlm.mixing.data_plan import DataPlan
from xlm.model.compiled import compile_activations
from xlm.model.encoder import checkpoint_layers
from xlm.model.pretraining import PretrainingModel
from xlm.runs.fingerprint import code_fingerprint, fingerprint
from xlm.runs.folder import RunFolder
from xlm.runs.stage import RECORD as STAGE_RECORD
from xlm.runs.stage import read_record
from xlm.shards.reader import ShardSet
from xlm.storage.store import ShardStore, open_store
from xlm.training.checkpoint import complete_checkpoints, missing_checkpoint
from xlm.training.deepspeed_config import load_deepspeed_config, zero_stage
from xlm.training.distributed import Process, tell_all
from xlm.training.engine import TrainingEngine
from xlm.training.objectives import PretrainingObjective
from xlm.training.precision import Precision, keep_precision, resolve_precision
from xlm.training.run_record import (
    LAYOUT_SETTINGS,
    RunRecord,
    check_same_run,
    layout_note,
    read_run_record,
    recipe_fingerprint,
    training_recipe,
    with_start,
    write_run_record,
)
from xlm.training.start_weights import load_start, start_fingerprint, start_weights
from xlm.training.statistics import LossStatistics
from xlm.training.trainable import check_trainable
from xlm.training.weights import ModelDescription
from xlm.vocab.vocabulary import Vocabulary

CODE_ROOMS = ("shards", "mixing", "batching", "model", "training")
VERSIONS = ("torch", "deepspeed", "numpy")


@dataclass(frozen=True)
class TrainingInputs:
    """What the stages before training left, opened and checked."""

    vocabulary: Vocabulary
    store: ShardStore
    shards: ShardSet
    plan: DataPlan
    loader: BatchLoader
    embeddings: Path | None
    fingerprints: Mapping[str, str]


def read_inputs(recipe: Recipe, folder: RunFolder, process: Process) -> TrainingInputs:
    """Open vocabulary, shards and embeddings.

    Raises UserError where one is missing or of another vocabulary, or for an objective that cannot be trained.
    """
    check_trainable(recipe)
    store = open_store(recipe.shards.storage, folder.shards)
    shards_record, _ = store.record(), read_record(folder.vocabulary)
    vocabulary = Vocabulary.load(folder.vocabulary)
    shards = ShardSet(store, vocabulary.fingerprint, vocabulary.size)
    shards.index.check_variants(recipe.shards.variants)
    shards.index.check_held_out(recipe.shards.held_out_share)
    plan = DataPlan(recipe, shards.index)
    loader = BatchLoader(
        plan,
        shards,
        vocabulary,
        recipe.seed,
        rank=process.rank,
        world_size=process.world_size,
        micro_batch_tokens=recipe.training.micro_batch_tokens,
        loader=recipe.training.loader,
    )
    fingerprints = {"vocabulary": vocabulary.fingerprint, "shards": shards_record.fingerprint}
    embeddings = None
    if isinstance(recipe.embeddings, AlignedInitialisation):
        embeddings = folder.embeddings
        fingerprints["embeddings"] = read_record(embeddings).fingerprint
    if recipe.start_from is not None:
        fingerprints["start_from"] = start_fingerprint(recipe.start_from)
    return TrainingInputs(vocabulary, store, shards, plan, loader, embeddings, fingerprints)


def stage_inputs(recipe: Recipe, inputs: TrainingInputs) -> dict[str, str]:
    """Return the fingerprints that decide whether a finished training is still the one asked for.

    How it was spread over ranks and memory does not, as it does not while it runs (`run_record`), and a DeepSpeed file says
    nothing else.
    """
    asked = {**training_recipe(recipe), "precision": recipe.training.precision}
    asked["training"] = {name: value for name, value in asked["training"].items() if f"training.{name}" not in LAYOUT_SETTINGS}
    return {
        **inputs.fingerprints,
        "recipe": fingerprint(asked),
        "code": code_fingerprint(*CODE_ROOMS),
    }


def open_run(
    recipe: Recipe, folder: RunFolder, inputs: TrainingInputs, deepspeed_config: Path, process: Process
) -> tuple[RunRecord, dict[str, Any]]:
    """Return the run's record and DeepSpeed's configuration, the same on every rank; the group must exist.

    A run that was started in this folder goes on, if it is the same (see `run_record`), and this start joins
    its record; otherwise a new one is recorded.
    """
    found = tell_all(_started_run(recipe, folder.train, inputs) if process.is_main else None)
    precision: Precision
    if found is None:
        precision = tell_all(resolve_precision(recipe.training.precision, process.device()))
    else:
        precision = keep_precision(recipe.training.precision, found.precision)
    config = load_deepspeed_config(
        deepspeed_config,
        recipe.training,
        precision,
        micro_steps=inputs.loader.micro_steps,
        world_size=process.world_size,
    )
    record = RunRecord(
        recipe=training_recipe(recipe),
        recipe_fingerprint=recipe_fingerprint(recipe),
        deepspeed=config,
        precision=precision,
        world_size=process.world_size,
        inputs=dict(inputs.fingerprints),
        languages=inputs.plan.languages,
        tracking_key=found.tracking_key if found else tell_all(uuid.uuid4().hex),
        code=code_fingerprint(*CODE_ROOMS),
        versions={"python": platform.python_version(), **{name: version(name) for name in VERSIONS}},
        mlflow_run_id=found.mlflow_run_id if found else None,
    )
    if found is not None:
        check_same_run(found, record, folder.train)
        note = layout_note(found, record)
        if note is not None and process.is_main:
            print(note)
    record = with_start(record, found)
    if process.is_main:
        if record.code_changed:
            print("note: the code or a library changed since this run was started; it goes on, but a rerun may give other numbers.")
        folder.train.mkdir(parents=True, exist_ok=True)
        write_run_record(folder.train, record)
    return record, config


def _started_run(recipe: Recipe, train_folder: Path, inputs: TrainingInputs) -> RunRecord | None:
    """Return the record of a run that is under way here; one of another kind that never saved anything does not count."""
    found = read_run_record(train_folder)
    if found is None or complete_checkpoints(train_folder):
        return found
    asked = (training_recipe(recipe), dict(inputs.fingerprints))
    return found if (dict(found.recipe), dict(found.inputs)) == asked else None


def build_engine(recipe: Recipe, inputs: TrainingInputs, config: Mapping[str, Any], process: Process) -> TrainingEngine:
    """Build the model with its initial weights and hand it to DeepSpeed; UserError for what a ZeRO stage cannot hold."""
    if recipe.training.contrastive.momentum is not None and zero_stage(config) == 3:
        raise UserError(
            "training.contrastive.momentum keeps a slow copy of the whole encoder on every rank, which ZeRO stage 3 does not have; "
            "use deepspeed_configs/ of stage 1 or 2, or take momentum out."
        )
    model = initial_model(recipe, inputs, say=process.is_main)
    if recipe.training.compile:
        compile_activations(model)
    if recipe.training.activation_checkpointing:
        checkpoint_layers(model)
    statistics = LossStatistics(tuple(phase.name for phase in recipe.phases), inputs.plan.languages, process.device())
    objective = PretrainingObjective(model, recipe.training, statistics)
    return TrainingEngine(objective, config, recipe.training.optimizer, recipe.training.loss_scale)


def initial_model(recipe: Recipe, inputs: TrainingInputs, *, say: bool = True) -> PretrainingModel:
    """Return the model as training finds it, the same on every rank: drawn, or with the weights of ``start_from``.

    Prints one line where heads of ``start_from`` are left out or new, if this process is to ``say`` so.
    """
    languages = inputs.plan.languages
    drawn = recipe.seed if recipe.start_from is None else None
    model = PretrainingModel(recipe.model, inputs.vocabulary.size, len(languages), seed=drawn)
    if recipe.start_from is not None:
        start = start_weights(recipe.start_from, recipe.model, inputs.vocabulary.fingerprint, languages)
        load_start(model, start, recipe.seed)
        if say and (sentence := start.sentence()):
            print(f"pretraining: {sentence}")
    if inputs.embeddings is not None:
        from xlm.model.aligned import load_aligned  # brings scipy along

        table = load_aligned(inputs.embeddings, inputs.vocabulary.fingerprint)
        model.load_token_embeddings(torch.from_numpy(table))
    model.tie_weights()
    return model


def describe_model(recipe: Recipe, inputs: TrainingInputs, record: RunRecord) -> ModelDescription:
    """Return what every checkpoint of the run says about its model, at step 0."""
    return ModelDescription(
        config=recipe.model.model_dump(mode="json"),
        vocabulary_size=inputs.vocabulary.size,
        vocabulary_fingerprint=inputs.vocabulary.fingerprint,
        languages=inputs.plan.languages,
        step=0,
        precision=record.precision,
        recipe_fingerprint=record.recipe_fingerprint,
    )


def check_started(train_folder: Path) -> None:
    """Raise a UserError where a folder holds a training and what says of which recipe it is is damaged or missing."""
    record = train_folder / STAGE_RECORD
    if record.exists():
        try:
            read_record(train_folder)
        except UserError:
            raise UserError(
                "this record of a finished training is damaged; delete this file alone, and the last checkpoint is finished with anew.",
                file=record,
            ) from None
    if read_run_record(train_folder) is None and complete_checkpoints(train_folder):
        raise UserError(
            "here are checkpoints, and run.json, which says what they were trained from, is missing; put it back, or move this folder "
            "away to train anew.",
            file=train_folder,
        )


def set_aside_finished(train_folder: Path) -> None:
    """Move a finished training of other inputs out of the way, to ``.train.old`` or the next free ``.train.old-2``.

    A training that has not finished is not touched: `open_run` says what differs.
    """
    if not (train_folder / STAGE_RECORD).exists():
        return
    old = train_folder.with_name(f".{train_folder.name}.old")
    number = 1
    while old.exists():  # each may be days of work
        number += 1
        old = train_folder.with_name(f".{train_folder.name}.old-{number}")
    train_folder.rename(old)
    print(f"pretraining: inputs changed since the finished run; it is kept in {old}, and a new one starts.")


def reopen_finished(train_folder: Path, steps: int) -> None:
    """Take back that a training has finished when the checkpoint of its last step is not whole, and say what is wrong."""
    problem = missing_checkpoint(train_folder, steps)
    if problem is None:
        return
    (train_folder / STAGE_RECORD).unlink()
    print(f"pretraining: finished before, but {problem} It goes on from the last whole checkpoint.")


def parameter_count(engine: TrainingEngine) -> int:
    """Return the number of parameters of the model."""
    return sum(getattr(parameter, "ds_numel", parameter.numel()) for parameter in engine.objective.model.parameters())
