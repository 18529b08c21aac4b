"""What a training run is made from, and whether a run on disk may go on.

``run.json`` is written before the first step. A start in the same folder with another recipe or other data
would silently be a mixture; it is refused with a sentence that names the first difference. Strict on purpose:
only when to save, when to show, how long to wait, who builds batches ahead, how to evaluate, and how training is
spread over ranks and memory (their number, ZeRO's stage and sizes, micro-batches) may change within a run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from xlm.config.recipe import Recipe
from xlm.errors import UserError
from xlm.runs.fingerprint import fingerprint
from xlm.runs.stage import write_json
from xlm.training.precision import Precision

RECORD = "run.json"
FREE_TRAINING_KEYS = frozenset(
    {"checkpoint", "validation", "non_finite", "loader", "log_every_steps", "process_group_timeout_s", "precision"}
)
# Of DeepSpeed's configuration: how a step is spread over ranks and memory, not what is computed but for rounding.
LAYOUT_KEYS = frozenset({"zero_optimization", "gradient_accumulation_steps", "train_batch_size", "steps_per_print", "wall_clock_breakdown"})
# The same of the recipe.
LAYOUT_SETTINGS = frozenset({"training.micro_batch_tokens", "training.activation_checkpointing"})


@dataclass(frozen=True)
class RunRecord:
    """``run.json``: resolved once, compared at every start."""

    recipe: Mapping[str, Any]  # the sections that decide what is trained
    recipe_fingerprint: str
    deepspeed: Mapping[str, Any]
    precision: Precision
    world_size: int
    inputs: Mapping[str, str]  # fingerprints: shards, vocabulary, embeddings
    languages: tuple[str, ...]
    tracking_key: str
    code: str
    versions: Mapping[str, str]
    mlflow_run_id: str | None = None
    mlflow_complete: bool = True  # whether it had every metric when a process of this run last ended by itself
    starts: tuple[Mapping[str, Any], ...] = ()  # code, versions, ranks of every start, oldest first; above are the last one's

    @property
    def code_changed(self) -> bool:
        """Whether the code or a library was another at one of the starts than at the first."""
        return any((start["code"], start["versions"]) != (self.starts[0]["code"], self.starts[0]["versions"]) for start in self.starts)

    @property
    def zero_stage(self) -> int:
        """The ZeRO stage of DeepSpeed's configuration."""
        return int(self.deepspeed.get("zero_optimization", {}).get("stage", 0))


def training_recipe(recipe: Recipe) -> dict[str, Any]:
    """Return what of a recipe decides a run's numbers, as JSON."""
    training = recipe.training.model_dump(mode="json", exclude=set(FREE_TRAINING_KEYS))
    return {
        "seed": recipe.seed,
        "embeddings": recipe.embeddings.model_dump(mode="json"),
        "model": recipe.model.model_dump(mode="json"),
        "phases": [phase.model_dump(mode="json") for phase in recipe.phases],
        # The shards themselves have a fingerprint; this decides in which order their rows are drawn.
        "shards": {"shuffle_window": recipe.shards.shuffle_window},
        "training": training,
    }


def recipe_fingerprint(recipe: Recipe) -> str:
    """Hash `training_recipe`."""
    return fingerprint(training_recipe(recipe))


def read_run_record(train_folder: Path) -> RunRecord | None:
    """Return the record of a folder, None when no run was started there; a damaged one is a UserError."""
    path = train_folder / RECORD
    try:
        return RunRecord(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (json.JSONDecodeError, TypeError, UnicodeDecodeError):
        raise UserError("this run record is damaged; delete its folder to train anew.", file=path) from None


def write_run_record(train_folder: Path, record: RunRecord) -> None:
    """Write ``run.json`` atomically."""
    write_json(train_folder / RECORD, asdict(record))


def with_start(record: RunRecord, found: RunRecord | None) -> RunRecord:
    """Return the record with this start behind those of ``found``, the record on disk."""
    before: tuple[Mapping[str, Any], ...] = ()
    if found is not None:
        before = tuple(found.starts) or (_start(found),)
    return replace(record, starts=(*before, _start(record)))


def _start(record: RunRecord) -> dict[str, Any]:
    ranks = {"world_size": record.world_size, "zero_stage": record.zero_stage}
    return {"code": record.code, "versions": dict(record.versions), **ranks}


def with_mlflow_run(record: RunRecord, run_id: str | None, *, complete: bool = True) -> RunRecord:
    """Return the record with the id of its MLflow run, and whether that has everything."""
    return replace(record, mlflow_run_id=run_id or record.mlflow_run_id, mlflow_complete=complete)


def check_same_run(found: RunRecord, wanted: RunRecord, train_folder: Path) -> None:
    """Raise a UserError that names the first difference which forbids going on with the run in this folder."""
    remedy = f"put it back to go on, choose another --run-dir, or delete {train_folder} to train anew"
    for name, before, now in _differences(dict(found.recipe), dict(wanted.recipe)):
        if name in LAYOUT_SETTINGS:
            continue
        raise UserError(
            f"the run in this folder was started with {name} = {before}, the recipe now says {now}; {remedy}.", file=train_folder
        )
    for name in sorted({*found.inputs, *wanted.inputs}):
        before, now = found.inputs.get(name), wanted.inputs.get(name)
        if before != now:
            raise UserError(f"the run in this folder was started with {name} {before}, now it is {now}; {remedy}.", file=train_folder)
    settings = (_without_layout(found.deepspeed), _without_layout(wanted.deepspeed))
    for name, before, now in _differences(*settings):
        raise UserError(
            f"the run in this folder was started with DeepSpeed's {name} = {before}, now it is {now}; {remedy}.", file=train_folder
        )


def layout_note(found: RunRecord, wanted: RunRecord) -> str | None:
    """Say for people how this start spreads training otherwise than the last one did; None where it does not."""
    parts = []
    before, now = (f"{_ranks(record.world_size)} at ZeRO stage {record.zero_stage}" for record in (found, wanted))
    if before != now:
        parts.append(f"from {before} to {now}")
    changed = [name for name, _, _ in _differences(_layout(found), _layout(wanted)) if name != "zero_optimization.stage"]
    if changed:
        parts.append(f"with another {', '.join(changed)}")
    if not parts:
        return None
    return f"note: this run goes on {' and '.join(parts)}: the same data, sums rounded in another order, other dropout masks."


def _ranks(number: int) -> str:
    return f"{number} rank{'' if number == 1 else 's'}"


def _layout(record: RunRecord) -> dict[str, Any]:
    training = record.recipe.get("training", {})
    settings = {f"training.{name}": value for name, value in training.items() if f"training.{name}" in LAYOUT_SETTINGS}
    # How many micro-batches there are follows from the rest.
    return {"zero_optimization": record.deepspeed.get("zero_optimization", {}), **settings}


def _without_layout(deepspeed: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in deepspeed.items() if name not in LAYOUT_KEYS}


def _differences(before: Any, now: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:  # noqa: ANN401 (JSON)
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted({*before, *now}):
            yield from _differences(before.get(key), now.get(key), f"{name}.{key}" if name else str(key))
    elif isinstance(before, list | tuple) and isinstance(now, list | tuple) and len(before) == len(now):
        for index, (one, other) in enumerate(zip(before, now, strict=True)):
            yield from _differences(one, other, f"{name}.{index}")
    elif before != now:
        yield name, before, now
