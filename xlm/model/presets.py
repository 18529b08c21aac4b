"""Model sizes by name: data in ``presets/``, one YAML file a model.

A preset holds what `ModelConfig` knows. What this version does not build (factorised embeddings, rotary
positions, ...) has no field, so no preset can ask for it. Position tables count usable positions:
RoBERTa's published 514 are 512 here, since nothing is shifted by the padding id.
"""

from __future__ import annotations

from pathlib import Path

from xlm.config.model import ModelConfig
from xlm.config.strict import load_config
from xlm.errors import UserError, suggest

_FOLDER = Path(__file__).parent / "presets"


def preset_names() -> tuple[str, ...]:
    """Return the names of all presets, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def load_preset(name: str) -> ModelConfig:
    """Return a preset's configuration; raises UserError, with the nearest name, for one that does not exist."""
    names = preset_names()
    if name not in names:
        raise UserError(f"there is no model preset '{name}'{suggest(name, names)}; allowed: {', '.join(names)}.")
    return load_config(ModelConfig, _FOLDER / f"{name}.yaml")
