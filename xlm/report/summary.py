"""The joined ``scores.json`` of a run: what the stages measured, what it cost, and all that names it.

One file answers "which model, on which text, under which protocol, how good against which floors":
promise 8. It holds no text and can be forwarded on its own.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from xlm.config.recipe import Recipe
from xlm.errors import UserError
from xlm.runs.cores import usable_cores
from xlm.runs.fingerprint import fingerprint
from xlm.runs.folder import RunFolder
from xlm.runs.lineage import SCORES as SCORE_STAGES
from xlm.runs.lineage import check_lineage, stage_records
from xlm.runs.stage import StageRecord

FORMAT_VERSION = 1
SCORES = "scores.json"
PACKAGES = (
    "xlm",
    "torch",
    "deepspeed",
    "sentencepiece",
    "numpy",
    "scipy",
    "scikit-learn",
    "pyarrow",
    "datasets",
    "mlflow",
    "hassil",
    "matplotlib",
)


def join_scores(recipe: Recipe, run: RunFolder) -> dict[str, Any]:
    """Join the scores of a run with its costs, fingerprints, versions and machine.

    Raises UserError where the run has not been trained, where its stages do not belong together, or where
    the recipe declares tasks and a score file is missing.
    """
    wanted = recipe.tasks is not None
    # Scores that an earlier recipe left in this folder are not this recipe's.
    records = {name: record for name, record in stage_records(run).items() if wanted or name not in SCORE_STAGES}
    if "train" not in records:
        raise UserError("this run has no finished training; run pipelines/pretrain.py (or pipelines/quickstart.py) first.", file=run.root)
    check_lineage(records, run.root, scored=wanted)
    zero_shot = read_json(run.zero_shot / SCORES, required=True) if wanted else {}
    code_switching = read_json(run.code_switching / SCORES, required=True) if wanted else {}
    training = dict(records["train"].summary)
    stages = {name: _cost(record) for name, record in records.items()}
    return {
        "format_version": FORMAT_VERSION,
        "unit": "percent",
        "recipe": {
            "name": recipe.name,
            "fingerprint": fingerprint(recipe.model_dump(mode="json")),
            "values": recipe.model_dump(mode="json"),
        },
        "summary": _summary(zero_shot, training, records),
        "tasks": {
            "intents": zero_shot.get("intents"),
            "slots": zero_shot.get("slots"),
            "topics": zero_shot.get("topics"),
            "retrieval": zero_shot.get("retrieval"),
            "code_switching": code_switching or None,
        },
        "training": training,
        "provenance": {"zero_shot": zero_shot.get("provenance"), "code_switching": code_switching.get("provenance")},
        "stages": stages,
        "versions": package_versions(),
        "machine": machine(),
    }


def _summary(zero_shot: Mapping[str, Any], training: Mapping[str, Any], records: Mapping[str, StageRecord]) -> dict[str, Any]:
    """Return the figures one looks at first; times are seconds, memory bytes, scores percent."""
    return {
        **zero_shot.get("summary", {}),
        "tokens_per_second": training.get("tokens_per_second"),
        "wall_s": round(sum(record.wall_s for record in records.values()), 1),
        "peak_memory_bytes": max(record.peak_memory_bytes for record in records.values()),
    }


def _cost(record: StageRecord) -> dict[str, Any]:
    return {
        "fingerprint": record.fingerprint,
        "inputs": dict(record.inputs),
        "wall_s": record.wall_s,
        "peak_memory_bytes": record.peak_memory_bytes,
    }


def read_json(path: Path, *, required: bool) -> dict[str, Any]:
    """Read a JSON object; where it is missing and not ``required``, an empty one."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if required:
            raise UserError("this file is missing; run the stage that writes it first.", file=path) from None
        return {}
    except json.JSONDecodeError as error:
        raise UserError("not valid JSON; delete the folder and run its stage again.", file=path, line=error.lineno) from None
    if not isinstance(data, dict):
        raise UserError("a JSON object is expected here; delete the folder and run its stage again.", file=path)
    return data


def package_versions() -> dict[str, str]:
    """Return Python's version and those of the packages that can change a score; absent ones are left out."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def machine() -> dict[str, Any]:
    """Describe this machine in general terms: system, processor architecture, cores, memory; no names."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cores": usable_cores(),
        "memory_bytes": psutil.virtual_memory().total,
    }
