"""What a score means: the weights, the sets, the protocol, the seeds, the interval and the versions it was made with."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import xlm
from xlm.config.recipe import Recipe
from xlm.evaluation.intent_task import SEEDS_TEXT
from xlm.evaluation.statistics import INTERVAL_TEXT
from xlm.evaluation.trained_encoder import TrainedEncoder
from xlm.runs.fingerprint import fingerprint
from xlm.runs.folder import RunFolder
from xlm.runs.stage import read_record
from xlm.tasks.evaluation_sets import load_record

LIBRARIES = ("numpy", "scikit-learn", "scipy", "sentencepiece", "torch")


def provenance(recipe: Recipe, run: RunFolder, trained: TrainedEncoder, *, protocol: str, texts: Mapping[str, int]) -> dict[str, Any]:
    """Return the ``provenance`` of a score file; ``texts`` counts texts encoded and texts cut."""
    return {
        "recipe": recipe.name,
        "recipe_fingerprint": fingerprint(recipe.model_dump(mode="json")),
        "checkpoint": str(trained.checkpoint.relative_to(run.root)),
        "step": trained.step,
        "vocabulary": trained.vocabulary.fingerprint,
        "tasks": read_record(run.tasks).fingerprint,
        "evaluation_sets": _set_fingerprints(run),
        "protocol": protocol,
        "seeds": list(recipe.evaluation.seeds),
        "seeds_vary": SEEDS_TEXT,
        "interval": INTERVAL_TEXT,
        "bootstrap_samples": recipe.evaluation.bootstrap_samples,
        "precision": trained.precision,
        "pretraining_seed": recipe.seed,
        "texts_encoded": texts.get("texts", 0),
        "texts_cut": texts.get("cut", 0),
        "versions": {"python": platform.python_version(), "xlm": xlm.__version__, **{name: version(name) for name in LIBRARIES}},
    }


def _set_fingerprints(run: RunFolder) -> dict[str, dict[str, str]]:
    """Return the fingerprint of every evaluation set, by task and language."""
    record = load_record(run.tasks)
    return {
        task: {language: entry["fingerprint"] for language, entry in record[task].items()}
        for task in ("intents", "topics", "retrieval")
        if record.get(task)
    }
