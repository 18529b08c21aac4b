"""Small wheels and catalogues that tests write themselves, so that no third-party text is needed."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import polib

from xlm.corpora.archive import Archive
from xlm.corpora.drops import DropCounts
from xlm.corpora.manifest import WheelSource


def write_wheel(folder: Path, name: str, version: str, members: dict[str, str | bytes]) -> Path:
    """Write a wheel that pip accepts; members may be given as text or bytes."""
    stem = f"{name.replace('-', '_')}-{version}"
    information = f"{stem}.dist-info"
    files: dict[str, str | bytes] = {
        **members,
        f"{information}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{information}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{information}/RECORD"] = "".join(f"{member},,\n" for member in files)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in files.items():
            archive.writestr(member, content)
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def catalogue(entries: list[polib.POEntry], plural_forms: str = "nplurals=2; plural=(n != 1);") -> polib.POFile:
    """Return a catalogue with a proper header."""
    file = polib.POFile()
    file.metadata = {"Content-Type": "text/plain; charset=UTF-8", "Plural-Forms": plural_forms}
    file.extend(entries)
    return file


def translations(**texts: str) -> str:
    return json.dumps(texts, ensure_ascii=False)


def read_wheel(read, layout, tmp_path: Path, members: dict[str, str | bytes], languages) -> tuple[list, dict]:
    """Return the records and the counts of what was dropped that a reader finds in a wheel of these members."""
    source = WheelSource(
        name="texts",
        kind="wheel",
        version="1.0",
        licence="MIT",
        homepage="-",
        sha256="0a" * 32,
        languages={language: language for language in languages},
        format=layout,
    )
    drops = DropCounts()
    with Archive(write_wheel(tmp_path, "texts", "1.0", members)) as archive:
        return list(read(source, layout, archive, drops)), drops.nested()
