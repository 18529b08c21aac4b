"""Fingerprints: short hashes by which a stage knows whether its inputs changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import xlm

FINGERPRINT_HEX = 16
# Every random draw goes through it, so an edit there may change what any stage writes.
_ALWAYS = "seeding"
_CHUNK_BYTES = 1 << 20


def fingerprint(value: object) -> str:
    """Hash a JSON-like value (dicts by sorted key) to 16 hexadecimal digits."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:FINGERPRINT_HEX]


def file_sha256(path: Path) -> str:
    """Hash a file's bytes, in chunks."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def code_fingerprint(*rooms: str) -> str:
    """Hash the sources of the named rooms (``"corpora"``) and single modules (``"seeding"``) of ``xlm``.

    A stage counts its own code among its inputs, so that an edited cleaner is never skipped; ``seeding.py``
    always counts. Raises ValueError for a name without sources, which would hash to the same for any edit.
    """
    root = Path(xlm.__file__).parent
    paths = {path for name in (*rooms, _ALWAYS) for path in _sources(root, name)}
    return fingerprint({path.relative_to(root).as_posix(): file_sha256(path) for path in paths})


def _sources(root: Path, name: str) -> list[Path]:
    module = root / f"{name}.py"
    if name.isidentifier():
        found = [module] if module.is_file() else list((root / name).rglob("*.py"))
        if found:
            return found
    raise ValueError(f"xlm has no room or module named '{name}'")


def combine(inputs: Mapping[str, str]) -> str:
    """Hash a mapping of named input fingerprints into one."""
    return fingerprint(dict(inputs))
