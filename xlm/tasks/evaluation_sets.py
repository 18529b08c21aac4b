"""Evaluation sets on disk: what a sentence and a pair are, how they are written, read and fingerprinted.

The sets are drawn once (`xlm.tasks.drawing`), frozen by a seed, and read by everything that scores a
model. A set's fingerprint goes beside every score, so that two figures are compared only when they were
measured on the same sentences. Formats: docs/formats.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from xlm.errors import UserError
from xlm.runs.fingerprint import fingerprint

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")

INTENTS = "intents"
TOPICS = "topics"
RETRIEVAL = "retrieval"
DEV_PREFIX = "dev-"
TASKS_RECORD = "tasks.json"
HELD_OUT = "held_out.npz"


@dataclass(frozen=True, slots=True)
class LabelledText:
    """One text and its label: a sentence and its intent, or an article and its topic.

    Texts of one ``template`` (a family, see `intents.family`; of an article its own id) are in the same ``split``: it is what
    intervals resample. ``tags``: one BIO tag a word (`xlm.tasks.slots`), with spaces between them.
    """

    id: str
    text: str
    label: str
    template: str
    split: Split
    tags: str = ""


@dataclass(frozen=True, slots=True)
class RetrievalPair:
    """An English text and its translation; ``key`` is the same in every language's pool."""

    key: str
    source: str
    target: str


Item = TypeVar("Item", LabelledText, RetrievalPair)


def save_labelled(folder: Path, task: str, language: str, texts: Sequence[LabelledText]) -> None:
    """Write ``<task>/<language>.jsonl`` under the tasks folder; ``task`` is `INTENTS` or `TOPICS`."""
    _write(folder / task / f"{language}.jsonl", texts)


def load_labelled(folder: Path, task: str, language: str) -> list[LabelledText]:
    """Read a language's texts of a task, all splits, in the order they were written.

    Raises UserError where the file is missing or damaged, naming the languages that are there.
    """
    path = folder / task / f"{language}.jsonl"
    texts = _read(path, LabelledText, labelled_languages(folder, task))
    for line, text in enumerate(texts, start=1):
        if text.split not in SPLITS:
            raise UserError(f"split '{text.split}' is none of {', '.join(SPLITS)}; build the tasks again.", file=path, line=line)
    return texts


def save_retrieval(folder: Path, language: str, pairs: Sequence[RetrievalPair], *, dev: bool = False) -> None:
    """Write ``retrieval/<language>.jsonl``, or the dev pool beside it."""
    _write(folder / RETRIEVAL / _pool_name(language, dev), pairs)


def load_retrieval(folder: Path, language: str, dev: bool = False) -> list[RetrievalPair]:
    """Read a language's pool in its keyed order: the first n pairs are a random sample of size n.

    Raises UserError where the file is missing or damaged, naming the languages that are there.
    """
    return _read(folder / RETRIEVAL / _pool_name(language, dev), RetrievalPair, retrieval_languages(folder, dev))


def labelled_languages(folder: Path, task: str) -> list[str]:
    """Return the languages that have texts of a task, sorted."""
    return sorted(path.stem for path in (folder / task).glob("*.jsonl"))


def retrieval_languages(folder: Path, dev: bool = False) -> list[str]:
    """Return the languages that have a retrieval pool (or a dev pool), sorted; English is every pool's other side."""
    names = sorted(path.stem for path in (folder / RETRIEVAL).glob("*.jsonl"))
    return [name.removeprefix(DEV_PREFIX) for name in names if name.startswith(DEV_PREFIX) == dev]


def set_fingerprint(items: Iterable[LabelledText | RetrievalPair]) -> str:
    """Hash a set's items in order: every field counts."""
    return fingerprint([asdict(item) for item in items])


def load_record(folder: Path) -> dict[str, Any]:
    """Read ``tasks.json``: seed, sizes, licences, what was left out, and every set's fingerprint."""
    path = folder / TASKS_RECORD
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError("the evaluation sets are not there; run pipelines/build_tasks.py first.", file=path) from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise UserError("this record is damaged; delete its folder and run pipelines/build_tasks.py again.", file=path) from None
    if not isinstance(record, dict):
        raise UserError("this record is damaged; delete its folder and run pipelines/build_tasks.py again.", file=path)
    return record


def _pool_name(language: str, dev: bool) -> str:
    return f"{DEV_PREFIX if dev else ''}{language}.jsonl"


def _write(path: Path, items: Iterable[LabelledText | RetrievalPair]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as stream:
        for item in items:
            stream.write(json.dumps(asdict(item), ensure_ascii=False) + "\n")


def _read(path: Path, kind: type[Item], available: Sequence[str]) -> list[Item]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        there = ", ".join(available) or "none; run pipelines/build_tasks.py first"
        raise UserError(f"no evaluation set for this language; there is {there}.", file=path) from None
    except UnicodeDecodeError as error:
        raise UserError(f"not valid UTF-8 at byte {error.start}; build the tasks again.", file=path) from None
    if lines and not lines[-1]:
        lines.pop()
    return [_parse(line, kind, path, number) for number, line in enumerate(lines, start=1)]


def _parse(line: str, kind: type[Item], path: Path, number: int) -> Item:
    names = [field.name for field in fields(kind)]
    try:
        data = json.loads(line)
    except json.JSONDecodeError:
        raise UserError("this line is not valid JSON; the set is damaged, build the tasks again.", file=path, line=number) from None
    if not isinstance(data, dict) or sorted(data) != sorted(names) or not all(isinstance(value, str) for value in data.values()):
        raise UserError(f"a JSON object of strings with the keys {', '.join(names)} is expected here.", file=path, line=number)
    return kind(**data)
