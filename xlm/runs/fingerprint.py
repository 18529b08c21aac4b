"""Fingerprints: short hashes by which a stage knows whether its inputs changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import xlm

FINGERPRINT_HEX = 16
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
    """Hash the sources of the named rooms of ``xlm`` (``"corpora"``, ``"vocab"`` ...).

    A stage counts its own code among its inputs, so that an edited cleaner is never skipped.
    """
    root = Path(xlm.__file__).parent
    sources: dict[str, str] = {}
    for room in rooms:
        for path in sorted((root / room).rglob("*.py")):
            sources[str(path.relative_to(root))] = file_sha256(path)
    return fingerprint(sources)


def combine(inputs: Mapping[str, str]) -> str:
    """Hash a mapping of named input fingerprints into one."""
    return fingerprint(dict(inputs))
