"""What a training run is made of, as files and tags for its MLflow run: recipe, data, vocabulary, code, environment."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import yaml

# A patch larger than this says less than its commit would; it is left out, and a tag says so.
DIFF_BYTES = 1 << 20
GIT_TIMEOUT_S = 10.0
# Of a stage's folder: what it was made from and what came out. The folders themselves are too large.
STAGES = ("tasks", "corpus", "vocabulary", "shards", "embeddings")
CARDS = ("stage.json", "coverage.json", "vocabulary.json")
SHOWN_VERSIONS = ("torch", "deepspeed", "numpy", "sentencepiece", "mlflow")


@dataclass
class RunCard:
    """Texts by the path they are attached under, and tags."""

    texts: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


def run_card(run_root: Path, *, recipe: Mapping[str, Any], manifest: Path, deepspeed: Mapping[str, Any]) -> RunCard:
    """Collect what lies in a run folder and around it; what cannot be read is left out.

    ``recipe`` and ``deepspeed`` are the resolved ones, ``manifest`` the file of the corpora.
    """
    card = RunCard()
    card.texts["recipe.yaml"] = _yaml(recipe)
    card.texts["deepspeed.yaml"] = _yaml(deepspeed)
    _attach(card, manifest, "manifest.yaml")
    for stage in STAGES:
        for name in CARDS:
            _attach(card, run_root / stage / name, f"stages/{stage}/{name}")
    add_git_state(card, Path(__file__).parent)
    add_environment(card)
    return card


def add_git_state(card: RunCard, folder: Path) -> None:
    """Add commit, branch and uncommitted changes of the repository that a folder belongs to, if it belongs to one."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return
    card.tags["mlflow.source.git.commit"] = commit.strip()
    card.tags["mlflow.source.git.branch"] = (_git(folder, "rev-parse", "--abbrev-ref", "HEAD") or "").strip()
    # Files that git does not know are part of the state, and not of the diff.
    state = _git(folder, "status", "--porcelain") or ""
    card.tags["git.dirty"] = str(bool(state.strip())).lower()
    if not state.strip():
        return
    card.texts["git/status.txt"] = state
    diff = _git(folder, "diff", "HEAD") or ""
    if len(diff.encode()) <= DIFF_BYTES:
        card.texts["git/changes.diff"] = diff
    else:
        card.tags["git.diff"] = f"left out, {len(diff.encode()):,} bytes"


def add_environment(card: RunCard) -> None:
    """Add the version of every installed package, and tags for those that decide numbers."""
    versions = {found.name: found.version for found in distributions() if found.name}
    card.texts["environment.txt"] = "".join(f"{name}=={version}\n" for name, version in sorted(versions.items(), key=_case_blind))
    card.tags["host"] = platform.node()
    card.tags["platform"] = platform.platform()
    card.tags["version.python"] = platform.python_version()
    card.tags["mlflow.source.name"] = Path(sys.argv[0]).name
    card.tags.update({f"version.{name}": versions[name] for name in SHOWN_VERSIONS if name in versions})


def _case_blind(item: tuple[str, str]) -> str:
    return item[0].lower()


def _attach(card: RunCard, path: Path, name: str) -> None:
    try:
        card.texts[name] = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return


def _yaml(value: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(value), allow_unicode=True, sort_keys=False)


def _git(folder: Path, *arguments: str) -> str | None:
    # No fsmonitor, no lock, no pager: reading a state must not change or wait for anything.
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=GIT_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
