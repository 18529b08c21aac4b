"""Model sizes by name: data in ``xlm/model/presets/``, one YAML file a model.

A preset holds what `ModelConfig` knows, and under ``published`` what it does not: the vocabulary size, the
number of parameters and the source. Position tables count usable positions: RoBERTa's published 514 are 512 here,
since nothing is shifted by the padding id.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from xlm.errors import suggest

FOLDER = Path(__file__).parent.parent / "model" / "presets"
PRESET_KEY, PUBLISHED_KEY = "preset", "published"


@dataclass(frozen=True)
class Published:
    """What is known of the published model beside its shape; ``parameters`` as its source rounds them."""

    vocabulary_size: int
    parameters: int
    languages: int
    source: str


def preset_names() -> tuple[str, ...]:
    """Return the names of all presets, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def with_preset(data: Any) -> Any:  # noqa: ANN401 (whatever YAML holds)
    """Put a preset's values under those that are written beside its name; ValueError, with the nearest name, for none.

    A section inside (``generator``) is joined key by key, too. Anything but a mapping with the key ``preset`` comes
    back as it is.
    """
    if not isinstance(data, dict) or PRESET_KEY not in data:
        return data
    values = preset_values(data[PRESET_KEY])
    for key, written in data.items():
        below = values.get(key)
        if key != PRESET_KEY:
            values[key] = {**below, **written} if isinstance(below, dict) and isinstance(written, dict) else written
    return values


def preset_values(name: str) -> dict[str, Any]:
    """Return a preset's fields of `ModelConfig`; raises ValueError for one that does not exist."""
    return {key: value for key, value in copy.deepcopy(_read(str(name))).items() if key != PUBLISHED_KEY}


def published(name: str) -> Published:
    """Return what a preset says of the published model; raises ValueError for one that does not exist."""
    return Published(**_read(name)[PUBLISHED_KEY])


@cache
def _read(name: str) -> dict[str, Any]:
    names = preset_names()
    if name not in names:
        raise ValueError(f"there is no model preset '{name}'{suggest(name, names)}; allowed: {', '.join(names)}")
    values: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    return values
