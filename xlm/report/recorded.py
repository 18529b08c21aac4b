"""What a run's stages recorded of how they were made: whether a recipe is theirs, and the command that makes them again.

A report joins numbers that other processes made. Under another recipe than theirs it would state what never
was: a seed that nothing was trained with, seeds that nothing was scored with.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from xlm.config.recipe import Recipe
from xlm.errors import UserError
from xlm.runs.cli import RUNS, Invocation
from xlm.runs.fingerprint import fingerprint
from xlm.runs.folder import RunFolder
from xlm.runs.lineage import stage_records
from xlm.training.run_record import FREE_TRAINING_KEYS, read_run_record, training_recipe

# The sections whose fingerprint each scoring stage (pipelines/<name>.py) keeps as its input "recipe".
SCORED_SECTIONS = {
    "zero_shot": frozenset({"tasks", "evaluation", "model", "embeddings", "seed"}),
    "code_switching": frozenset({"tasks", "evaluation", "model", "seed"}),
}
# What pipelines/quickstart.py takes where no option says otherwise: zero2.json, and two ranks on all but the smallest machines.
DEFAULT_DEEPSPEED, DEFAULT_RANKS = "zero2.json", 2


def check_recorded_recipe(recipe: Recipe, run: RunFolder) -> None:
    """Raise a UserError where the recipe differs from the run's own in what decides its training or its scores."""
    found = read_run_record(run.train)
    if found is not None:
        trained, given = _flat(found.recipe), _flat(training_recipe(recipe))
        for name in sorted({*trained, *given} - {f"training.{key}" for key in FREE_TRAINING_KEYS}):
            if trained.get(name) != given.get(name):
                raise UserError(
                    f"the run in this folder was trained with {name} = {trained.get(name)}, the recipe now says {given.get(name)}; "
                    "give the recipe and the options of that run, or choose another --run-dir.",
                    file=run.train,
                )
        # Resolved when training began; "auto" asks for whatever that was.
        if recipe.training.precision not in ("auto", found.precision):
            raise UserError(
                f"the run in this folder was trained in {found.precision}, the recipe now says {recipe.training.precision}; give the "
                "recipe and the options of that run, or choose another --run-dir.",
                file=run.train,
            )
    records = stage_records(run)
    if recipe.tasks is None:
        if "corpus" in records and records["corpus"].inputs.get("tasks", "none") != "none":
            raise UserError(
                "the text of this run was made with test sets kept out, and the recipe now has no tasks; give the recipe and the options "
                "of that run, or choose another --run-dir.",
                file=run.corpus,
            )
        return  # Scores that an earlier recipe left in this folder are not reported.
    for name, sections in SCORED_SECTIONS.items():
        recorded = records[name].inputs.get("recipe") if name in records else None
        if recorded is not None and recorded != fingerprint(recipe.model_dump(mode="json", include=set(sections))):
            raise UserError(
                f"these scores were made under other values of {', '.join(sorted(sections))} than the recipe has now, and a report states "
                f"only what its scores were made under; give that recipe and its options again, or run pipelines/{name}.py with these.",
                file=run.root / name,
            )


def _flat(value: object, name: str = "") -> dict[str, object]:
    """Return JSON as ``{"phases.0.steps": 300}``."""
    if isinstance(value, Mapping) and value:
        parts = list(value.items())
    elif isinstance(value, list | tuple) and value:
        parts = list(enumerate(value))
    else:
        return {name: value}
    return {key: leaf for part, inner in parts for key, leaf in _flat(inner, f"{name}.{part}" if name else str(part)).items()}


def command_again(invocation: Invocation, deepspeed_configs: Path) -> str:
    """Return the command that makes the whole run again; empty where it is not known how the run was trained."""
    arguments, folder = invocation.arguments, invocation.folder
    command = ["python", "pipelines/quickstart.py", "--recipe", str(invocation.recipe_path)]
    for override in arguments.set:
        command += ["--set", override]
    if folder.root != RUNS / invocation.recipe.name:
        command += ["--run-dir", str(folder.root)]
    record, train = read_run_record(folder.train), stage_records(folder).get("train")
    config = _deepspeed_config(train.inputs.get("deepspeed", "") if train else "", deepspeed_configs)
    if record is None or config is None:
        return ""
    if record.world_size != DEFAULT_RANKS:
        command += ["--ranks", str(record.world_size)]
    if config != DEFAULT_DEEPSPEED:
        command += ["--deepspeed_config", f"{deepspeed_configs.name}/{config}"]
    return shlex.join(command)


def _deepspeed_config(recorded: str, folder: Path) -> str | None:
    """Return the name of the configuration file with this fingerprint, None where it is not one of the project's."""
    names = [path.name for path in sorted(folder.glob("*.json")) if fingerprint(json.loads(path.read_text("utf-8"))) == recorded]
    return DEFAULT_DEEPSPEED if DEFAULT_DEEPSPEED in names else names[0] if names else None
